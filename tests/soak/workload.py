"""What a client of the soak does: one random operation after the other.

An operation that ends otherwise than it may raises, and ends the client.
"""

import contextlib
import socket

import grpc
import numpy as np
import rlk
from rlk import _methods

# Ends of an operation that are a server's or a caller's right.
REFUSED = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "UNAUTHENTICATED"}
GIVEN_UP = {"CANCELLED", "DEADLINE_EXCEEDED"}
NOT_SERVED = {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}

ROWS, COLUMNS = 16, 512
LARGE = 1 << 20  # elements of FP32 that go in a stream


def end_of(code):
    """How an operation with this status ended; None for what must not be."""
    ends = {"refused": REFUSED, "given up": GIVEN_UP, "not served": NOT_SERVED}
    return next((end for end, codes in ends.items() if code in codes), None)


def tensors():
    """The inputs; the same in every process."""
    generator = np.random.default_rng(7)
    x = (generator.standard_normal((ROWS, COLUMNS)) * 20).astype(np.float32)
    weight = generator.standard_normal(COLUMNS).astype(np.float32)
    return x, weight


def good_calls(x, weight):
    """(method, arguments) of calls that succeed."""
    return [
        ("final_logit_softcap.forward", {"x": x, "softcap": 20.0}),
        ("final_logit_softcap.backward", {"x": x, "grad_y": x, "softcap": 30.0}),
        ("rms_norm.forward", {"x": x, "weight": weight}),
        ("rms_norm.backward", {"x": x, "weight": weight, "grad_y": x}),
        ("rms_norm_gated.forward", {"x": x, "weight": weight, "gate": x}),
        ("det_linear.forward", {"x": x[:4], "weight": x}),
    ]


def bits_of(result):
    """The outputs that were computed, as text."""
    outputs = {name: value for name, value in result.items() if value is not None}
    return {name: np.ascontiguousarray(value).tobytes().hex() for name, value in outputs.items()}


def known_bits(addresses):
    """The outputs of all good calls."""
    with rlk.connect(addresses["listen"][0], timeout=600) as client:
        calls = good_calls(*tensors())
        return [bits_of(client.call(name, **arguments)) for name, arguments in calls]


class Workload:
    def __init__(self, addresses, bits, random):
        self.addresses, self.bits, self.random = addresses, bits, random
        self.x, self.weight = tensors()
        self.calls = good_calls(self.x, self.weight)
        self.large = np.resize(self.x, LARGE)
        self.client = None
        self.connect()

    def connect(self, unix=None):
        """TCP or the Unix socket, where a session ends with the process; by chance, or as told."""
        if self.client is not None:
            self.client.close()
        self.unix = self.random.random() < 0.5 if unix is None else unix
        address = f"unix:{self.addresses['unix']}" if self.unix else self.addresses["listen"][0]
        # A killed client's connection is no part of the next one's.
        own = [("grpc.use_local_subchannel_pool", 1)]
        self.client = rlk.connect(address, timeout=300, channel_options=own)
        self.client.wait_ready(300)

    def step(self):
        """Does one operation; returns its name and how it ended."""
        name = self.random.choice(OPERATIONS)
        try:
            end = getattr(self, name)() or "ok"
        except rlk.RlkError as error:
            end = end_of(error.code)
            if end is None or (end == "refused" and name not in MAY_BE_REFUSED):
                raise
        return f"{name} {end}"

    def pick(self):
        number = self.random.randrange(len(self.calls))
        name, arguments = self.calls[number]
        return number, name, arguments

    def expect(self, number, result):
        if bits_of(result) != self.bits[number]:
            raise AssertionError(f"other bits of {self.calls[number][0]}")

    def call(self):
        number, name, arguments = self.pick()
        self.expect(number, self.client.call(name, **arguments))

    def verified_call(self):
        number, name, arguments = self.pick()
        verify = self.random.choice(["repeat", "reference"])
        self.expect(number, self.client.call(name, verify=verify, **arguments))

    def late_call(self):
        """A deadline that may pass anywhere between the client and the last phase."""
        number, name, arguments = self.pick()
        timeout = 10 ** self.random.uniform(-4, -1)
        self.expect(number, self.client.call(name, timeout=timeout, **arguments))

    def cancelled_calls(self):
        """Several in flight, some of them cancelled at once, in any order."""
        futures = []
        for number, name, arguments in (self.pick() for _ in range(8)):
            futures.append((number, self.client.call_async(name, **arguments)))
        self.random.shuffle(futures)
        for _, future in futures[: self.random.randrange(9)]:
            future.cancel()
        ends = set()
        for number, future in futures:
            try:
                self.expect(number, future.result())
            except rlk.RlkError as error:
                ends.add(error.code)
                if error.code not in GIVEN_UP | NOT_SERVED:
                    raise
            except BaseException as error:
                if type(error).__name__ != "CancelledError":
                    raise
                ends.add("CANCELLED")
        return "given up" if ends & GIVEN_UP else "not served" if ends else "ok"

    def wrong_call(self):
        name, arguments = self.random.choice(
            [
                ("final_logit_softcap.forward", {"x": self.x, "softcap": -1.0}),
                ("final_logit_softcap.forward", {"x": self.x.astype(np.int32)}),
                ("rms_norm.forward", {"x": self.x, "weight": self.weight[:3]}),
                ("rms_norm.forward", {"x": self.x, "weight": self.weight, "contract": "none/v9"}),
                ("det_linear.forward", {"x": self.x, "weight": self.x[:, :8]}),
            ]
        )
        self.client.call(name, **arguments)
        raise AssertionError(f"{name} with {list(arguments)} succeeded")

    def malformed_message(self):
        """A request with bits flipped, cut, or of noise; gRPC's own cap is passed now and then."""
        _, name, arguments = self.pick()
        request = self.client._request(name, None, arguments)
        data = bytearray(request.data)
        how = self.random.randrange(4)
        if how == 0:
            # Mostly in what is not payload.
            for _ in range(self.random.randrange(1, 9)):
                at = self.random.randrange(self.random.choice([64, len(data)]))
                data[at] ^= 1 << self.random.randrange(8)
        elif how == 1:
            del data[self.random.randrange(len(data)) :]
        elif how == 2:
            data = bytearray(self.random.randbytes(self.random.randrange(2048)))
        else:
            data += self.random.randbytes(int(10 ** self.random.uniform(0, 6.8)))
        others = [method.path for method in _methods.all_methods().values()]
        path = self.random.choice([request.method.path, self.random.choice(others)])
        call = self.client._channel.unary_unary(path)
        try:
            call(bytes(data), timeout=300)
        except grpc.RpcError as error:
            code = error.code().name
            if code in REFUSED | {"UNIMPLEMENTED"}:
                return "refused"
            if code in NOT_SERVED:
                return "not served"
            raise
        return "ok"

    def garbage_connection(self):
        """Bytes that are no HTTP/2, to each of the listeners."""
        host, _, port = self.addresses["listen"][0].rpartition(":")
        peer = self.random.choice(
            [
                socket.socket(socket.AF_INET, socket.SOCK_STREAM),
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET),
            ]
        )
        if peer.family == socket.AF_INET:
            peer.connect((host, int(port)))
        else:
            peer.connect(self.addresses["unix" if peer.type == socket.SOCK_STREAM else "side"])
        start = self.random.choice([b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        with peer, contextlib.suppress(OSError):
            peer.sendall(start + self.random.randbytes(self.random.randrange(4096)))

    def resident_call(self):
        """An upload, a call on it, and the bytes back; sometimes nothing is released."""
        with_release = self.random.random() < 0.7
        resident = self.client.put(self.x)
        number = self.random.choice([0, 2])
        name, arguments = self.calls[number]
        self.expect(number, self.client.call(name, **{**arguments, "x": resident}))
        if self.client.get(resident).tobytes() != self.x.tobytes():
            raise AssertionError("other bytes of an upload")
        if with_release:
            self.client.release(resident)

    def arena_call(self):
        """Between arrays in shared memory, late now and then; the arrays go at once, whatever the
        server still does with them."""
        if not self.unix:
            self.connect(unix=True)
        read, written = self.client.arena(1 << 18), self.client.arena(1 << 18, "output")
        x, y = (arena.empty(self.x.shape, "f32") for arena in (read, written))
        x[:] = self.x
        number = self.random.choice([0, 2])
        name, arguments = self.calls[number]
        late = {"timeout": 10 ** self.random.uniform(-4, -1)} if self.random.random() < 0.5 else {}
        result = self.client.call(name, **{**arguments, "x": x}, out={"y": y}, **late)
        if result.y is not y:
            raise AssertionError("an output that is not where it was asked for")
        self.expect(number, result)

    def large_upload(self):
        resident = self.client.put(self.large)
        back = self.client.get(resident)
        if back.tobytes() != self.large.tobytes():
            raise AssertionError("other bytes of a large upload")
        self.client.release(resident)

    def late_upload(self):
        """A stream that ends at its deadline, somewhere."""
        timeout = 10 ** self.random.uniform(-3, -0.5)
        resident = self.client.put(self.large, timeout=timeout)
        self.client.release(resident)

    def new_connection(self):
        self.connect()

    def foreign_handle(self):
        """A tensor of a session that has ended is nobody's."""
        resident = self.client.put(self.x)
        self.client.close()
        self.client = None
        self.connect()
        self.client.call("final_logit_softcap.forward", x=resident)
        raise AssertionError("a foreign handle was taken")


# Drawn with equal chances; good calls and what meets them in the engine more often.
OPERATIONS = [
    "call",
    "call",
    "verified_call",
    "late_call",
    "late_call",
    "cancelled_calls",
    "cancelled_calls",
    "wrong_call",
    "malformed_message",
    "malformed_message",
    "garbage_connection",
    "resident_call",
    "arena_call",
    "large_upload",
    "late_upload",
    "new_connection",
    "foreign_handle",
]
MAY_BE_REFUSED = {"wrong_call", "malformed_message", "foreign_handle"}
