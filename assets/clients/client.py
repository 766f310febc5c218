"""A client of Pagedeck that needs pyzmq and msgpack only: python client.py CONNECTION_FILE "Once upon a time" """

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import zmq


def connect(path: str) -> Any:
    """A DEALER on the control socket of the engine that a connection file describes."""
    found = json.loads(Path(path).read_text())
    control: Any = zmq.Context.instance().socket(zmq.DEALER)
    control.set(zmq.LINGER, 500)
    if found["server_key"]:
        control.set(zmq.CURVE_SERVERKEY, found["server_key"].encode())
        control.set(zmq.CURVE_PUBLICKEY, found["public_key"].encode())
        control.set(zmq.CURVE_SECRETKEY, found["secret_key"].encode())
    control.connect(found["control"])
    return control


def say(control: Any, **message: Any) -> None:
    control.send(msgpack.packb(message))


def messages(control: Any) -> Iterator[dict[str, Any]]:
    """What the engine says, while it is alive; a ping goes out every second."""
    heard = pinged = time.monotonic()
    while time.monotonic() - heard < 30:
        if control.poll(200):
            heard = time.monotonic()
            yield msgpack.unpackb(control.recv())
        if time.monotonic() - pinged > 1:
            pinged = time.monotonic()
            say(control, type="ping", id="ping")
    raise SystemExit("the engine has not answered for 30 s")


control = connect(sys.argv[1])
say(control, type="hello", id="hello", version=1, client="client.py")
for message in messages(control):
    if message["type"] == "failed":
        raise SystemExit(f"{message['code']}: {message['message']}")
    if message["type"] == "welcome":
        sampling = {"max_tokens": int([*sys.argv, "50"][3]), "temperature": 0.0}
        say(control, type="submit", id=uuid.uuid4().hex, prompt=sys.argv[2], sampling=sampling)
    elif message["type"] == "tokens":
        print(message.get("text", ""), end="", flush=True)
    elif message["type"] == "finished":
        print(f"\n[{message['samples'][0]['finish_reason']}, {message['output_tokens']} tokens]")
        say(control, type="bye")
        break
