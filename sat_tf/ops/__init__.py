"""Hand-tuned numerics, each beside the plain form that it must equal.

A tuned form whose gain depends on the device is chosen where it runs, not where it was traced:
`alignment.inference_scores` asks the runtime (`runs_on_cpu`), so that an export made on a machine
with a GPU takes the fast path of the CPU that serves it, and the other way round.
"""
