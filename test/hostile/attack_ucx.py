"""Attacks over ucx: its frames and messages (ucx_lies.py), lies of the other transports that reach it, and strangers at
the port that UCX itself opens.

What docs/connectors.md says that ucx does not withstand is not attacked here: a forged worker address, bytes that follow
the greeting of UCX itself, and a sender whose UCX asks for answers.
"""

import random
import resource
import socket
import threading
import time

import data_lies
import receiver_lies
import source_lies
import ucx_lies
from attack import Missing, ToPrefill, crowd, decode_worker, end, group, some, split, warm
from peers import introduce, prompt
from ucx_peers import Context, UcxReceiver, UcxSource
from worker import Worker

UCX_KB = 48 * 1024  # workers, their buffers and pools
IDLE_FDS = 16 * 8  # workers that wait for the next conversation


def jobs(args, prefill, bundle, others, digest, failures):
    try:
        context = Context()
        UcxReceiver.context = context
        first = Worker(args.baton, 'prefill', '--lease-seconds', '4', listen='ucx:127.0.0.1:0')
    except (OSError, RuntimeError) as e:
        raise Missing(e)
    return [lambda: attack_decode(args.baton, bundle, others, digest, failures, context, args.long),
            lambda: attack_prefill(args.baton, first, bundle, digest, failures, args.long)]


def attack_decode(binary, bundle, others, digest, failures, context, long):
    source = UcxSource(bundle, digest, context)
    worker, to, _ = decode_worker(binary, source, failures)
    fds = worker.descriptors()

    def attack(title, lies, every=1):
        to.group('ucx, to a receiver: ' + title, some(split(lies)[0], long, every), UCX_KB)
    to.truths('ucx, to a receiver: messages in any order', ucx_lies.piece_truths(), UCX_KB)
    attack('messages', ucx_lies.piece_lies(bundle), 2)
    attack('WORKER and frames in between', ucx_lies.worker_lies(), 2)
    attack('bundles stitched and forged', data_lies.stitched(bundle, *others))
    attack('headers and ends of frames', source_lies.frame_lies(bundle, {}), 9)
    for title, lies in source_lies.field_lies(bundle):
        attack(title, lies, 18)
    failures.check(not source.trouble, 'receiver', 'broke the documents: %s' % source.trouble[:3])
    end(worker, failures, fds + IDLE_FDS)


def attack_prefill(binary, worker, bundle, digest, failures, long):
    theirs = introduce(worker.endpoint, digest)
    to = ToPrefill(worker, digest, theirs, failures, UcxReceiver)
    sample = to.fresh()
    sample.close()
    warm(to)
    through = Through(binary, worker, failures)
    fds = worker.descriptors()

    def attack(title, cases, every=1):
        to.group('ucx, to a source: ' + title, some(split(cases)[0], long, every), UCX_KB)
        through.check(title)
    attack('READs one after another', ucx_lies.honest_cases())
    attack('WORKER', ucx_lies.worker_cases())
    attack('READ and LANDED', ucx_lies.read_cases(bundle), 2)
    attack('fields of HELLO and ASK', receiver_lies.field_cases(sample), 18)
    attack('frames and records', receiver_lies.record_cases(sample.hello, sample.ask), 9)
    attack('order and floods', receiver_lies.order_cases(sample.hello, sample.ask), 6)
    silent = [case for case in receiver_lies.silent_cases() if 'READ' not in case.name] + list(ucx_lies.silent_cases())
    group(worker, failures, 'ucx, to a source: %d silences at once' % len(silent), [silent], to.at_once, to.honest, UCX_KB)
    group(worker, failures, 'ucx, to a source: 400 strangers at once', [400], crowd(worker), to.honest, UCX_KB)
    for role, victim in (('a source', worker), ('a receiver', through.worker)):
        own_ports(role, victim, to, through, failures)
    through.end()
    attack_short_of_descriptors(binary, worker, failures)
    end(worker, failures, fds + IDLE_FDS)


class Through:
    """A real decode worker that pulls from the attacked one over ucx, between the attacks."""

    def __init__(self, binary, prefill, failures, before=None):
        self.prefill, self.failures = prefill, failures
        self.worker = Worker(binary, 'decode', '--handoff-retries', '3', before=before)
        self.truth = self.worker.generate(prompt(), prefill.endpoint)[:2]

    def check(self, title):
        ids, logits, result = self.worker.generate(prompt(), self.prefill.endpoint)
        self.failures.check((ids, logits) == self.truth, title, 'a real decode worker: other tokens')
        self.failures.check(any(h['verified'] for h in result['handoffs']), title,
                            'a real decode worker was refused: %s' % result['handoffs'])

    def end(self):
        end(self.worker, self.failures, self.worker.descriptors())


def own_ports(role, victim, to, through, failures):
    """Strangers at the ports that UCX opened, while real hand-offs go on."""
    found = ucx_lies.ports(victim)
    failures.check(found, role, 'UCX listens nowhere')
    cases = list(ucx_lies.strangers(lambda: random.choice(found)))
    over = threading.Event()

    def run(case):
        try:
            case[1]()
        except OSError:
            pass  # A port goes with its worker.

    def repeatedly():
        while not over.is_set():
            for case in cases:
                run(case)
    threads = [threading.Thread(target=repeatedly) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        through.check('strangers at the ports of UCX')
        to.honest()
    over.set()
    for thread in threads:
        thread.join()
    failures.cases += len(cases)
    group(victim, failures, "ucx, to %s: strangers at UCX's own ports" % role, cases, run, to.honest, UCX_KB)
    for _ in range(150):  # A worker between two conversations lets go of them when another one ends.
        through.check('after strangers')
        if ucx_lies.left_behind(victim) == 0:
            break
        time.sleep(0.02)
    left = ucx_lies.left_behind(victim)
    failures.check(left == 0, role, "%d connections of strangers to UCX's ports are still open" % left)


def attack_short_of_descriptors(binary, prefill, failures):
    """Strangers at UCX's port take every descriptor of a receiver; when they have left, it goes on."""
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150))
    through = Through(binary, prefill, failures, before=few)
    fds = through.worker.descriptors()
    port, held = ucx_lies.ports(through.worker)[0], []
    for _ in range(300):
        held.append(socket.socket())
        held[-1].settimeout(1)
        try:
            held[-1].connect(('127.0.0.1', port))
        except OSError:  # The backlog is full.
            break
    time.sleep(0.2)
    failures.check(through.worker.descriptors() > 140, 'strangers at the port of UCX', 'descriptors were left')
    for sock in held:
        sock.close()
    time.sleep(0.2)
    through.worker.generate(prompt(), prefill.endpoint)  # has, perhaps, nothing to connect with
    through.check('strangers who took every descriptor')
    deadline = time.time() + 20
    while ucx_lies.left_behind(through.worker) and time.time() < deadline:
        time.sleep(0.1)
        through.worker.generate(prompt(), prefill.endpoint)  # with every hand-off it sees who has gone
    failures.check(ucx_lies.left_behind(through.worker) == 0, 'strangers who took every descriptor', 'are still there')
    failures.cases += 1
    end(through.worker, failures, fds)
