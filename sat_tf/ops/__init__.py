"""Hand-tuned numerics; each equals a plain form, which stands beside it or is given to it.

A tuned form whose gain depends on the device is chosen where it runs, not where it was traced:
`search.in_parts` asks the runtime (`runs_on_cpu`), so that an export made on a machine
with a GPU takes the fast path of the CPU that serves it, and the other way round.
"""
