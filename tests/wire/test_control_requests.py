"""Control requests on the wire: what is accepted, and how the rest is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.wire.control_codec import InvalidControlRequestError, SteeringMessage, parse_control_request


def encode_steering(content: Any, **more: Any) -> bytes:
    message = {"role": "user", "content": content, **more}
    return json.dumps({"type": "user", "request_id": "r1", "message": message}).encode()


@pytest.mark.parametrize("content", ["go left", [{"type": "text", "text": "go left"}]])
def test_a_steering_message_has_its_text_and_id(content: Any) -> None:
    request = parse_control_request(encode_steering(content))
    assert isinstance(request, SteeringMessage)
    assert (request.message.text, request.request_id) == ("go left", "r1")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (encode_steering([]), "unknown blocks"),
        (encode_steering([{"type": "text", "text": "go"}, {"type": "hologram"}]), "unknown blocks.*hologram"),
        (encode_steering([{"type": "hologram"}]), "unknown blocks.*hologram"),
        (encode_steering(None), "must be a string or a list of blocks"),
        (encode_steering("go", role="assistant"), "must be an object with role user"),
        (b'{"type": "user", "request_id": "r1", "message": 5}', "must be an object with role user"),
    ],
)
def test_a_steering_message_that_would_be_cut_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidControlRequestError, match=reason):
        parse_control_request(line)
