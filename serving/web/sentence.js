// A sentence of the user's as a captioner's words.
const [END, UNKNOWN] = [2, 3]; // of every vocabulary

// The words of a sentence, as they are shown, and their ids with the end's; those that are unknown.
export function readSentence(sentence, { forms, join }, { lang, max_length: longest }) {
  if (join.between !== " ") throw new Error("Sentences of your own are read here by captioners of whole words: `sat-tf explain` takes the others.");
  const small = (text) => text.normalize("NFC").replaceAll("\u2019", "'").toLocaleLowerCase(lang || "en");
  const found = small(sentence).match(/[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:['-][\p{L}\p{M}\p{N}]+)*/gu) ?? [];
  if (!found.length) throw new Error("Write a sentence with words.");
  if (found.length > longest) throw new Error(`The sentence has ${found.length} words, and a caption at most ${longest}.`);
  const places = new Map(forms.map((form, id) => [small(form), id]));
  const ids = found.map((word) => places.get(word) ?? UNKNOWN);
  const unknown = [...new Set(found.filter((_, n) => ids[n] === UNKNOWN))];
  if (ids.every((id) => id === UNKNOWN)) throw new Error(`The captioner knows none of these words: ${unknown.join(", ")}.`);
  return { ids: [...ids, END], tokens: found.map((word, n) => (ids[n] === UNKNOWN ? word : forms[ids[n]])), unknown };
}
