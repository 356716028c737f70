"""Attacks over shm: what only it can be told (shm_lies.py), and lies of the other transports that reach it."""

import fcntl
import os
import resource

import data_lies
import receiver_lies
import shm_lies
import shm_receiver_lies
import source_lies
import wire as w
from attack import OFFER_KB, RECORD_KB, ToPrefill, crowd, decode_worker, end, group, some, split, warm
from peers import Lie, Receiver, introduce
from shm_peers import PAGE, ShmReceiver, ShmSource, as_user, places
from worker import Worker

NOBODY = 65534


def listen():
    return 'shm:@hostile-worker-%s' % os.urandom(8).hex()


def jobs(args, prefill, bundle, others, digest, failures):
    where, _ = places()
    bundle, others = bundle.placed(where), [other.placed(where) for other in others]
    return [lambda: attack_decode(args.baton, bundle, others, digest, failures, args.long),
            lambda: attack_prefill(args.baton, bundle, digest, failures, args.long),
            lambda: (attack_impatient(args.baton, bundle, digest, failures),
                     attack_joined(args.baton, bundle, digest, failures, args.long),
                     attack_short_of_descriptors(args.baton, digest, failures))]


def end_of_source(worker, to, source, failures, fds):
    """A decode worker keeps a peer's arenas until the peer is gone: then it has no descriptor of it any more."""
    failures.check(not source.trouble, 'receiver', 'broke the documents: %s' % source.trouble[:3])
    kept = worker.descriptors() - fds
    failures.check(kept <= 20, worker.role, 'keeps %d descriptors more than in the beginning' % kept)
    source.close()
    to.run(Lie('a source that is gone'), verified=False)
    end(worker, failures, fds)


def attack_decode(binary, bundle, others, digest, failures, long):
    source = ShmSource(bundle, digest)
    worker, to, fds = decode_worker(binary, source, failures)
    size, large, huge = source.sizes[0], [], []

    def attack(title, lies, every=1):
        small, more, most = split(lies)
        large.extend(more)
        huge.extend(most)
        to.group('shm, to a receiver: ' + title, some(small, long, every))
    to.truths('shm, to a receiver: ARENA in odd ways', shm_lies.arena_truths())
    attack('ARENA', shm_lies.arena_lies())
    to.truths('shm, to a receiver: descriptors with other frames', shm_lies.carried())
    shm_lies.close_carried()
    attack('addresses', shm_lies.address_lies(bundle, size), 3)
    attack('bytes', shm_lies.byte_lies(bundle))
    to.truths('shm, to a receiver: changes that do not matter', shm_lies.harmless_changes(source.where))
    attack('changes', shm_lies.changes(source.where))
    stormy(to, source, failures, 200 if long else 40)
    odd_sources(to, bundle, digest, failures)
    attack('bundles stitched and forged', data_lies.stitched(bundle, *others))
    attack('headers and ends of frames', source_lies.frame_lies(bundle, {'ARENA': w.pack_arena([size])}), 4)
    for title, lies in (*source_lies.field_lies(bundle), ('ERROR', source_lies.error_lies()),
                        ('order and floods', data_lies.order_lies(bundle))):
        attack(title, lies, 9)
    if long:
        attack('every bit of every record', source_lies.every_bit(bundle))
        to.group('shm, to a receiver: records of megabytes', large, RECORD_KB)
        to.group('shm, to a receiver: frames of 64 MiB', huge, OFFER_KB)
    vast(worker, to, bundle, digest, failures)
    end_of_source(worker, to, source, failures, fds)


def stormy(to, source, failures, rounds):
    """Whether the bytes were true when they were copied is chance; the tokens are the same either way."""
    verified = []
    lies = [shm_lies.storm(source.where, source.bundle.memory) for _ in range(rounds)]
    group(to.worker, failures, 'shm, to a receiver: memory that changes all the time', lies,
          lambda lie: verified.append(to.run(lie)), to.honest)
    failures.check(not all(verified), 'memory that changes all the time', 'was never read while it was false')
    print('%52s of these %d were true by luck' % ('', sum(verified)))


def odd_sources(to, bundle, digest, failures):
    """Sources that are honest, but unusual; and their twins."""
    def placed(**how):
        return bundle.placed(places(**how)[0])
    odd = [('every part one byte off', ShmSource(placed(shift=1), digest)),
           ('every part 63 bytes off', ShmSource(placed(shift=63), digest)),
           ('fourteen regions', ShmSource(placed(region=lambda key: key % (1 << 32) + 8 * (key >> 32)), digest)),
           ('a memory that may grow', ShmSource(bundle, digest, seals=fcntl.F_SEAL_SHRINK))]
    if os.geteuid() == 0:
        odd.append(("another process's socket", ShmSource(bundle, digest, listen=lambda at: as_user(0, 'listen', at))))
    for name, source in odd:
        to.honest(Lie('shm: ' + name), source)
    growing = odd[3][1]
    memory = growing.truth[0]
    announced = Lie('ARENA of a size that was true', 'ARENA', ['malformed'])
    os.ftruncate(memory.fd, memory.size + PAGE)
    to.run(announced, source=growing, verified=False)
    memory.size += PAGE
    to.honest(Lie('shm: a memory that grew'), growing)
    if os.geteuid() == 0:
        foreign = ShmSource(bundle, digest, listen=lambda at: as_user(NOBODY, 'listen', at))
        to.run(Lie("another user's socket"), source=foreign, verified=False)
        failures.check(not foreign.asks, "another user's socket", 'was asked')
        odd.append(('', foreign))
    for _, source in odd:
        failures.check(not source.trouble, 'receiver', 'broke the documents: %s' % source.trouble[:3])
        source.close()
        to.run(Lie('a source that is gone'), verified=False, source=source)


def vast(worker, to, bundle, digest, failures):
    """Four sources that announce arenas as large as what is left of the worker's addresses."""
    sources = [ShmSource(bundle, digest) for _ in range(4)]
    lie = shm_lies.vast(worker.process.pid)
    def run(source):
        to.run(lie, source=source)
    group(worker, failures, 'shm, to a receiver: arenas as large as its addresses', sources, run, to.honest)
    left = shm_lies.gaps(worker.process.pid)[0]
    failures.check(left >= 1 << 40, 'arenas as large as its addresses', 'the largest hole left has %d bytes' % left)
    for source in sources:
        source.close()
        to.run(Lie('a source that is gone'), verified=False, source=source)


def attack_impatient(binary, bundle, digest, failures):
    lies = list(data_lies.silences(('ARENA', 'HELLO', 'BLOCKS', 'OFFER')))
    sources = [ShmSource(bundle, digest) for _ in lies]
    worker, to, fds = decode_worker(binary, sources[0], failures, '--handoff-timeout', '2')
    to.at_once('shm, to a receiver', lies, sources)
    for source in sources[1:]:
        source.close()
        to.run(Lie('a source that is gone'), verified=False, source=source)
    end_of_source(worker, to, sources[0], failures, fds)


def attack_joined(binary, bundle, digest, failures, long):
    source = ShmSource(bundle, digest)
    worker, to, fds = decode_worker(binary, source, failures, plan=True)
    lies = [lie for lie in data_lies.joined_lies(bundle) if lie.step not in ('DATA', 'RANGE')]
    to.group('shm, to a receiver over two connections', some(lies, long))
    failures.check(source.joins > 0, 'JOIN', 'no connection joined')
    end_of_source(worker, to, source, failures, fds + 1)


def attack_prefill(binary, bundle, digest, failures, long):
    worker = Worker(binary, 'prefill', '--lease-seconds', '4', listen=listen())
    theirs = introduce(worker.endpoint, digest)
    to = ToPrefill(worker, digest, theirs, failures, ShmReceiver)
    sample = to.fresh()
    sample.close()
    warm(to)
    fds = worker.descriptors()
    def attack(title, cases, every=1):
        to.group('shm, to a source: ' + title, some(split(cases)[0], long, every))
    attack('frames of other transports', shm_receiver_lies.read_cases(bundle.offer))
    attack('descriptors', shm_receiver_lies.descriptor_cases())
    def trespass(attempt):
        wire = w.Wire.connect(worker.endpoint)
        arenas = wire.receive_arena()
        attempt(arenas)
        for _, fd in arenas:
            os.close(fd)
        wire.close()
        to.honest()
        failures.cases += 1
    group(worker, failures, 'shm, to a source: its arena', shm_receiver_lies.trespasses(failures.check), trespass, to.honest)
    if os.geteuid() == 0:
        users(worker, to, digest, theirs, failures)
    attack('fields of HELLO and ASK', receiver_lies.field_cases(sample), 9)
    attack('frames and records', receiver_lies.record_cases(sample.hello, sample.ask), 6)
    attack('JOIN', receiver_lies.join_cases())
    attack('order and floods', receiver_lies.order_cases(sample.hello, sample.ask), 3)
    silent = [case for case in receiver_lies.silent_cases() if 'READ' not in case.name]
    group(worker, failures, 'shm, to a source: %d silences at once' % len(silent), [silent], to.at_once, to.honest)
    group(worker, failures, 'shm, to a source: 400 strangers at once', [400], crowd(worker), to.honest, RECORD_KB)
    end(worker, failures, fds)


def users(worker, to, digest, theirs, failures):
    """A connection that another user's process made is closed; one that another process of this user made is served."""
    def over(uid):
        r = to.fresh()
        r.close()
        r.wire = w.Wire(as_user(uid, 'connect', worker.endpoint))
        r.open()
        return r
    over(0).fetch()
    for _ in range(3):
        try:
            over(NOBODY)
            failures.check(False, "another user's connection", 'was given the arena')
        except w.Closed:
            pass
        to.honest()
    failures.cases += 4


def attack_short_of_descriptors(binary, digest, failures):
    """A worker whose descriptors run out refuses whom it has none for, and goes on when they are back."""
    for at, receiver in ((listen(), ShmReceiver), ('tcp:127.0.0.1:0', Receiver)):
        for limit in (120, 121):  # A connection takes two: with one of the limits the last one is left over.
            few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            worker = Worker(binary, 'prefill', '--lease-seconds', '4', listen=at, before=few)
            to = ToPrefill(worker, digest, introduce(worker.endpoint, digest), failures, receiver)
            for _ in range(4):
                to.honest()
            fds = worker.descriptors()
            group(worker, failures, '%s, to a source with %d descriptors: strangers' % (at.split(':')[0], limit), [150, 150],
                  crowd(worker), to.honest, RECORD_KB)
            end(worker, failures, fds)
