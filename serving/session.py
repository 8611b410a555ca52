"""A SavedModel in a session of TensorFlow's, as TF Serving runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.files import literal_path

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.protobuf import meta_graph_pb2


def load_session(
    path: Path, threads: int = 0, rewrite: bool = True
) -> tuple[tf.compat.v1.Session, meta_graph_pb2.MetaGraphDef]:
    """Loads a version of an export into a session of its own.

    Args:
        path: The version's folder.
        threads: Threads within an operation, and operations at a time; 0 leaves it to TensorFlow.
        rewrite: Let TensorFlow rewrite the graphs (Grappler) before they run first.

    Returns:
        The session, for its user to close, and the graph with its signatures.

    Raises:
        Exception: The folder is no SavedModel with the tag `serve`; TensorFlow raises several
            types.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    config.gpu_options.allow_growth = True
    config.graph_options.rewrite_options.disable_meta_optimizer = not rewrite
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    try:
        with session.graph.as_default(), literal_path(path) as folder:
            return session, tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
    except BaseException:
        session.close()
        raise
