"""Sessions of Spark that start quickly."""

import gc
import os
import shutil
import sys
from contextlib import contextmanager

import pytest

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.log.level": "OFF",
    # An executor that a test has killed does not come back: do not wait for it.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    # Java processes that end soon are not worth compiling for speed.
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
}

NEEDS = [
    pytest.mark.skipif(
        shutil.which("java") is None, reason="Spark needs Java; install a Java runtime, 17 or newer"
    ),
    pytest.mark.skipif(os.name == "nt", reason="Spark on Windows needs more than Java"),
    pytest.mark.filterwarnings("ignore"),  # of pyspark about itself
]


@contextmanager
def spark_session(master):
    """Yield a session of Spark."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # whatever the machine is called
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    gc.collect()  # sockets that pyspark does not close
