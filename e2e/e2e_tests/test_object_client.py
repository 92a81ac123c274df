"""The client of the stories (odradek_testkit.kubernetes.client) against a real API server."""

import threading
from functools import partial
from typing import Any

import pytest

from odradek_testkit.kubernetes.client import ObjectClient, RequestFailedError
from odradek_testkit.waiting import wait_until


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"test": "objects"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_an_object_is_created_changed_found_and_deleted(api: ObjectClient, namespace: str) -> None:
    api.apply(config_map("one", color="red"), namespace)
    api.apply(config_map("one", color="blue", size="1"), namespace)
    api.patch("ConfigMap", "one", {"data": {"size": None}}, namespace)
    assert api.get("ConfigMap", "one", namespace)["data"] == {"color": "blue"}
    found = api.find("ConfigMap", namespace, "test=objects")
    assert [one["metadata"]["name"] for one in found] == ["one"]
    assert api.find("ConfigMap", namespace, "test=other") == []
    assert api.uid("ConfigMap", "one", namespace) == found[0]["metadata"]["uid"]
    api.delete("ConfigMap", "one", namespace)
    api.delete("ConfigMap", "one", namespace)  # it is deleted already
    assert api.get_if_any("ConfigMap", "one", namespace) is None
    assert api.uid("ConfigMap", "one", namespace) == ""


def test_an_error_has_the_message_of_the_api_server(api: ObjectClient, namespace: str) -> None:
    with pytest.raises(RequestFailedError, match=r'get ConfigMap none: .*"none" not found'):
        api.get("ConfigMap", "none", namespace)
    with pytest.raises(RequestFailedError, match=r"apply ConfigMap a_b: Invalid: .*RFC 1123"):
        api.apply(config_map("a_b"), namespace)


def test_cluster_wide_kinds_and_plain_paths(api: ObjectClient) -> None:
    nodes = {node["metadata"]["name"] for node in api.find("Node")}
    assert nodes == {"node-a", "node-b", "node-c"}
    api.patch("Node", "node-a", {"spec": {"unschedulable": True}})
    assert api.get("Node", "node-a")["spec"]["unschedulable"] is True
    api.patch("Node", "node-a", {"spec": {"unschedulable": None}})
    assert "unschedulable" not in api.get("Node", "node-a")["spec"]
    assert api.read("/readyz") == "ok"


def test_a_deletion_keeps_what_the_object_owns(api: ObjectClient, namespace: str) -> None:
    """The way in which stories delete a StatefulSet and keep its pods."""
    owner = api.apply(config_map("owner"), namespace)
    owned = config_map("owned")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    api.apply(owned, namespace)
    api.delete("ConfigMap", "owner", namespace, orphan=True)
    wait_until(lambda: api.get_if_any("ConfigMap", "owner", namespace) is None, "deleted")
    left = api.get("ConfigMap", "owned", namespace)
    assert "ownerReferences" not in left["metadata"]


def test_a_watch_sees_every_change(api: ObjectClient, namespace: str) -> None:
    api.apply(config_map("watched", n="0"), namespace)
    stop, seen = threading.Event(), [""]

    def read() -> None:
        for found in api.watch("ConfigMap", "watched", namespace, stop):
            seen.append(found["data"]["n"])

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(4):
        if n > 0:
            api.patch("ConfigMap", "watched", {"data": {"n": str(n)}}, namespace)
        wait_until(partial(seen.__contains__, str(n)), f"change {n}")
    stop.set()
    reader.join()
    assert seen == ["", "0", "1", "2", "3"]
