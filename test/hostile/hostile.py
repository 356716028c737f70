#!/usr/bin/env python3
"""Attacks real `baton serve` workers over the wire format, as their source and as their receiver.

usage: hostile.py BATON [--transport tcp,shm,ucx] [--long] [--verbose]

Everything said here is made from docs/format/ (wire.py). First an honest hand-off in each direction, which shows that the
documents suffice; then one lie a run. For each: the worker lives, its tokens and the hash of all its logits equal those of
an undisturbed run, what it holds goes back to zero, and its memory stays under a cap. Without --long some groups run every
third of their lies; with it all, and every byte of every record. Over shm and ucx the lies are those that only these
can be told, and some of the others (attack_shm.py, attack_ucx.py).
Exit status: 0 good, 1 a failure, 77 something is missing here.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile

try:
    import wire as w
except OSError as e:
    print('hostile.py is skipped: %s; install libxxhash0' % e)
    sys.exit(77)

import attack_shm
import attack_ucx
import data_lies
import receiver_lies
import source_lies
from attack import (OFFER_KB, RECORD_KB, SMALL_KB, Failures, Missing, ToDecode, ToPrefill, crowd, decode_worker, end, group,
                    side_by_side, some, split, warm)
from peers import BOUNDARY, Receiver, Source, introduce, prompt
from worker import Worker


def fetched(prefill, digest, tokens):
    """The bundle of an honest hand-off, some blocks of which came early: a source on a busy machine may have computed all
    before it hears of the other side."""
    theirs = introduce(prefill.endpoint, digest)
    for _ in range(50):
        bundle = Receiver(prefill.endpoint, digest, theirs, tokens).fetch()
        if bundle.early:
            return bundle
    raise RuntimeError('no BLOCKS in 50 hand-offs')


def attack_prefill(binary, bundle, digest, failures, long):
    worker = Worker(binary, 'prefill', '--lease-seconds', '4')
    theirs = introduce(worker.endpoint, digest)
    to = ToPrefill(worker, digest, theirs, failures)
    sample = to.fresh()
    sample.wire.close()
    warm(to)
    fds = worker.descriptors()
    small, large, _ = split(receiver_lies.field_cases(sample))
    to.group('to a source: fields of HELLO and ASK', small)
    frames, more, huge = split(receiver_lies.record_cases(sample.hello, sample.ask))
    to.group('to a source: frames and records', some(frames, long))
    to.group('to a source: READ', receiver_lies.read_cases(bundle))
    to.group('to a source: JOIN', receiver_lies.join_cases())
    to.group('to a source: order and floods', receiver_lies.order_cases(sample.hello, sample.ask))
    to.group('to a source: records of megabytes', large + more, RECORD_KB)
    to.group('to a source: frames of 64 MiB', huge, SMALL_KB)
    silent = list(receiver_lies.silent_cases())
    group(worker, failures, 'to a source: %d silences at once' % len(silent), [silent], to.at_once, to.honest)
    group(worker, failures, 'to a source: 400 strangers at once', [400], crowd(worker), to.honest, RECORD_KB)
    end(worker, failures, fds)


def attack_decode(binary, bundle, others, digest, failures, long):
    source = Source(bundle, digest)
    worker, to, _ = decode_worker(binary, source, failures)
    fds = worker.descriptors()
    large, huge = [], []

    def attack(title, lies):
        small, more, most = split(lies)
        large.extend(more)
        huge.extend(most)
        to.group('to a receiver: ' + title, small)
    attack('fields of HELLO', source_lies.hello_lies(bundle))
    attack('fields of BLOCKS', source_lies.blocks_lies(bundle))
    offers, more, _ = split(source_lies.offer_lies(bundle))
    attack('fields of OFFER', some(offers, long) + more)
    attack('fields of the seal', source_lies.seal_lies(bundle))
    attack('DATA', data_lies.data_lies(bundle))
    attack('bundles stitched and forged', data_lies.stitched(bundle, *others))
    frames, more, most = split(source_lies.frame_lies(bundle))
    attack('headers and ends of frames', some(frames, long) + more + most)
    attack('ERROR', source_lies.error_lies())
    attack('order and floods', data_lies.order_lies(bundle))
    if long:
        attack('every bit of every record', source_lies.every_bit(bundle))
    to.group('to a receiver: records of megabytes', large, RECORD_KB)
    to.group('to a receiver: frames of 64 MiB', huge, OFFER_KB)
    failures.check(not source.trouble, 'receiver', 'broke the documents: %s' % source.trouble[:3])
    end(worker, failures, fds)


def attack_impatient(binary, bundle, digest, failures):
    """A source that says nothing, or a byte at a time: only the deadline ends it."""
    lies = list(data_lies.silences())
    sources = [Source(bundle, digest) for _ in lies]
    worker, to, _ = decode_worker(binary, sources[0], failures, '--handoff-timeout', '2')
    fds = worker.descriptors()
    to.at_once('to a receiver', lies, sources)
    end(worker, failures, fds)


def attack_keyed(binary, failures, long):
    """With a key no peer without it can make bytes pass, however consistent its lie is."""
    key = bytes(range(7, 39))
    with tempfile.NamedTemporaryFile('w', prefix='hostile-key-') as f:
        f.write(key.hex())
        f.flush()
        flags = ['--digest', 'blake2b', '--digest-key-file', f.name]
        prefill = Worker(binary, 'prefill', *flags)
        digest = w.Digest(2, key)
        bundle = fetched(prefill, digest, prompt()[:BOUNDARY])
        source = Source(bundle, digest)
        worker, to, _ = decode_worker(binary, source, failures, *flags, retries=1)
        fds = worker.descriptors()
        to.group('to a receiver with a key: forged bundles', data_lies.forged_without_key(bundle))
        to.group('to a receiver with a key: DATA', some(data_lies.data_lies(bundle), long))
        over_two = ToDecode(worker, source, to.truth, failures, plan=True)
        over_two.group('to a receiver over two connections', some(data_lies.joined_lies(bundle), long))
        failures.check(source.joins > 0, 'JOIN', 'no connection joined')
        failures.check(not source.trouble, 'receiver', 'broke the documents: %s' % source.trouble[:3])
        end(worker, failures, fds)
        prefill.stop()


def attack_tcp(args, prefill, bundle, others, digest, failures):
    return [lambda: attack_decode(args.baton, bundle, others, digest, failures, args.long),
            lambda: attack_prefill(args.baton, bundle, digest, failures, args.long),
            lambda: (attack_impatient(args.baton, bundle, digest, failures),
                     attack_keyed(args.baton, failures, args.long))]


ATTACKS = {'tcp': attack_tcp, 'shm': attack_shm.jobs, 'ucx': attack_ucx.jobs}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('baton')
    parser.add_argument('--transport', default='tcp,shm,ucx')
    parser.add_argument('--long', action='store_true')
    parser.add_argument('--verbose', action='store_true')
    args = parser.parse_args()
    failures, digest = Failures(args.verbose), w.Digest()
    prefill = Worker(args.baton, 'prefill')
    tokens = prompt()[:BOUNDARY]
    bundle, *others = [fetched(prefill, digest, ts) for ts in (tokens, prompt(6)[:BOUNDARY], tokens[:BOUNDARY - 16])]
    print('an honest hand-off, by the documents: %d parts, %d bytes, %d BLOCKS' %
          (len(bundle.memory), sum(map(len, bundle.memory.values())), len(bundle.early)), flush=True)
    missing = []
    for transport in args.transport.split(','):
        try:
            jobs = ATTACKS[transport](args, prefill, bundle, others, digest, failures)
        except Missing as e:
            missing.append(transport)
            print('%s is skipped: %s' % (transport, e), flush=True)
            continue
        for thread in side_by_side(failures, jobs):
            thread.join()
    failures.check(prefill.stop() == 0, 'prefill', 'exit status %s' % prefill.process.returncode)
    print('%d runs, %d failures' % (failures.cases, len(failures.lines)))
    if missing == args.transport.split(','):
        return 77
    return 1 if failures.lines else 0


def supervised():
    """Runs main in a process of its own. Over ucx the lies go through UCX itself, whose assertions may end the liar: that is
    no fault of the worker's, and all begins again. A worker that ends is a failure of the run, whatever ended it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for _ in range(4):
        child = subprocess.Popen([sys.executable] + sys.argv, env=dict(os.environ, HOSTILE_RUN='1'), start_new_session=True)
        try:
            code = child.wait()
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)  # with the workers of a liar that ended
            except ProcessLookupError:
                pass
        if code != -signal.SIGABRT:
            return code if code >= 0 else 1
        print('the liar was ended by its own UCX; from the beginning', flush=True)
    return 1


if __name__ == '__main__':
    sys.exit(main() if 'HOSTILE_RUN' in os.environ else supervised())
