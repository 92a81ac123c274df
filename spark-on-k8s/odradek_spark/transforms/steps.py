"""Runs the steps of a pipeline: SQL over the views so far, or Python functions.

    views = {"visits": df}; result = run_steps(spark, steps, views, directory)

Each result is a view for later steps; the last one goes to the sink. An error names the
step: "spec.steps[1].sql: [TABLE_OR_VIEW_NOT_FOUND] …".
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from odradek_api.pipeline.common import Dedup, Watermark
from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.rules import step_name
from odradek_api.pipeline.spec import Step
from odradek_spark.schemas import first_line


def run_steps(
    spark: SparkSession, steps: Sequence[Step], views: Mapping[str, DataFrame], directory: Path
) -> DataFrame:
    """The last step's result; without steps, the only source."""
    known = dict(views)
    for name, view in known.items():
        view.createOrReplaceTempView(name)
    last = next(iter(known.values()))
    for number, step in enumerate(steps):
        at = f"spec.steps[{number}]"
        last = _run(spark, at, step, known, last, directory)
        last = watermark_and_dedup(at, last, step.watermark, step.dedup)
        name = step_name(number, step)
        last.createOrReplaceTempView(name)
        known[name] = last
    return last


def watermark_and_dedup(
    at: str, frame: DataFrame, watermark: Watermark | None, dedup: Dedup | None
) -> DataFrame:
    """Applies watermark and deduplication; without a watermark (a batch) over all records."""
    if watermark is not None:
        _check_column(f"{at}.watermark.column", frame, watermark.column)
        try:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        except PySparkException as error:
            raise SpecError(f"{at}.watermark", first_line(error)) from None
    if dedup is not None:
        for name in dedup.by:
            _check_column(f"{at}.dedup.by", frame, name)
        if frame.isStreaming and watermark is not None:
            return frame.dropDuplicatesWithinWatermark(dedup.by)
        return frame.dropDuplicates(dedup.by)
    return frame


def _check_column(at: str, frame: DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise SpecError(at, f"there is no column {name}, only {', '.join(frame.columns)}")


def _run(
    spark: SparkSession,
    at: str,
    step: Step,
    known: Mapping[str, DataFrame],
    last: DataFrame,
    directory: Path,
) -> DataFrame:
    if step.sql is not None:
        try:
            return spark.sql(step.sql)
        except PySparkException as error:
            raise SpecError(f"{at}.sql", first_line(error)) from None
    if step.python is None and step.code is None:
        return last
    field = "python" if step.python is not None else "code"
    function = _function(f"{at}.{field}", at, step, directory)
    inputs = [known[name] for name in step.inputs] or [last]
    try:
        result = function(*inputs)
    except Exception as error:
        message = f"{step.function} raised {type(error).__name__}: {first_line(error)}"
        raise SpecError(f"{at}.{field}", message) from error
    if not isinstance(result, DataFrame):
        message = f"{step.function} returned a {type(result).__name__} instead of a DataFrame"
        raise SpecError(f"{at}.function", message)
    return result


def _function(at: str, step_at: str, step: Step, directory: Path) -> Callable[..., Any]:
    module = _module(at, step, directory)
    found: Callable[..., Any] | None = getattr(module, step.function, None)
    if not callable(found):
        raise SpecError(f"{step_at}.function", f"it defines no function {step.function}")
    return found


def _module(at: str, step: Step, directory: Path) -> ModuleType:
    """Loads the file as a module; its functions are pickled by value for the executors."""
    name = f"odradek_step_{abs(hash((step.python, step.code)))}"
    if step.python is not None:
        path = directory / step.python
        if not path.is_file():
            raise SpecError(at, f"file {path} does not exist")
        source, filename = path.read_text(), str(path)
    else:
        assert step.code is not None
        source, filename = step.code, "spec"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=filename)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except Exception as error:
        raise SpecError(at, f"{type(error).__name__}: {first_line(error)}") from error
    cloudpickle.register_pickle_by_value(module)
    return module
