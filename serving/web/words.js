// The words of a sentence, as `tokenize` of `sat_tf/text/words.py` splits captions; its entities are read before.

const APOSTROPHES = /[\u2019\u02bc\uff07\u2018`\u00b4\u02bb\u201b\u2032]/gu;
const UNSEEN = /(?![\u200c\u200d])[\p{Me}\p{Cf}\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const SEPARATORS = /[^\p{L}\p{M}\p{N}'\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4.,:/%]/gu;
const DOTLESS = /^(tr|az|crh|gag)(-|$)|^(tt|kk)-latn/i; // languages whose I has no dot when it is small

const RUN = String.raw`[^\s'\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4.,:/%]`; // letters, marks and digits
const LETTER = String.raw`[\p{L}\p{Nl}\p{No}]`;
const WORD = new RegExp([
  String.raw`(?!\s)(?:(?<!\S)${LETTER}+(?!\S)|(?<!\S)'${LETTER}{1,2}(?!\S)`,
  String.raw`|(?:(?<![\p{L}\p{N}.,:/%'\-])-(?=\.?\p{Nd}))?(?:(?<![\p{L}\p{N}.%])[.%](?=\p{Nd}))?[\p{L}\p{N}]${RUN}*`,
  String.raw`(?:(?:['\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4]|(?<=\p{Nd})[.,:/](?=\p{Nd})|(?<=\p{Nd})%['\-])${RUN}+)*`,
  String.raw`(?:(?<=\p{Nd})%)?|(?<=\p{Nd} )%|(?<!\p{Nd})(?<!\p{Nd} )%(?= \p{Nd}))`,
].join(""), "gu");

function lowerCase(text, language) {
  if (DOTLESS.test(language || "")) text = text.replaceAll("I\u0307", "i").replaceAll("\u0130", "i").replaceAll("I", "\u0131");
  return text.toLowerCase().replaceAll("i\u0307", "i");
}

export function tokenize(sentence, language) {
  const text = lowerCase(sentence, language).normalize("NFC").replace(APOSTROPHES, "'").replace(/[\u2010\u2011]/g, "-");
  return text.replace(UNSEEN, "").replace(SEPARATORS, " ").match(WORD) ?? [];
}
