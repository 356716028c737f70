"""Runs lies against a worker, and checks after each what must hold."""

import re
import threading
import time
import traceback

import source_lies
import wire as w
from peers import BOUNDARY, Lie, Receiver, prompt
from worker import Worker

# How much a worker's peak memory may grow over what it was when a group of lies began. The records and frames that really
# arrive are held while they are read: 4 MiB of tokens, 64 MiB of an OFFER with its buffer grown by half.
SMALL_KB, RECORD_KB, OFFER_KB = 12 * 1024, 40 * 1024, 112 * 1024


class Missing(Exception):
    """Something that a transport needs is not here."""


class Failures:
    def __init__(self, verbose):
        self.verbose, self.lines, self.cases = verbose, [], 0

    def check(self, good, case, text):
        if not good:
            self.lines.append('%s: %s' % (case, text))
            print('FAILED', self.lines[-1], flush=True)

    def note(self, *text):
        if self.verbose:
            print(*text, flush=True)


def group(worker, failures, title, cases, run, honest, cap_kb=SMALL_KB):
    """Runs every case, an honest hand-off now and then and at the end; the worker's peak memory stays under the cap."""
    begun, before, count = time.time(), worker.memory_kb(), 0
    worker.reset_peak()
    for count, case in enumerate(cases, 1):
        run(case)
        if count % 40 == 0:
            honest()
    honest()
    peak = worker.memory_kb('VmHWM') - before
    failures.check(peak < cap_kb, title, 'peak memory grew by %d KiB, the cap is %d' % (peak, cap_kb))
    print('%-52s %5d lies %6.1f s   peak memory +%6d KiB (cap %d)' %
          (title, count, time.time() - begun, peak, cap_kb), flush=True)


class ToDecode:
    """Lies to a decode worker, as its source."""

    def __init__(self, worker, source, truth, failures, plan=False):
        self.worker, self.source, self.truth, self.failures, self.plan = worker, source, truth, failures, plan

    def honest(self, lie=None, source=None):
        """A hand-off that must succeed; `lie`: a truth told in another way."""
        # A busy machine may make an honest source miss a short deadline, but not five times.
        for left in range(4, -1, -1):
            lie = lie or Lie('the truth')
            lie.harmless = True
            if self.run(lie, verified=True if left == 0 else None, source=source):
                return

    def at_once(self, title, lies, sources):
        """Lies side by side, each from a source of its own."""
        def run(lies):
            told = [lambda x=x, s=s: self.run(x, source=s, idle=False) for x, s in zip(lies, sources)]
            for thread in side_by_side(self.failures, told):
                thread.join()
        group(self.worker, self.failures, '%s: %d silences at once' % (title, len(lies)), [lies], run, self.honest)

    def run(self, lie, verified=None, source=None, idle=True):
        """One request while the source tells `lie`; `verified`: whether the hand-off must succeed."""
        source, f, begun = source or self.source, self.failures, time.time()
        source.lie, source.told = lie, 0
        f.cases += 1
        ids, logits, result = self.worker.generate(prompt(), source.plan if self.plan else source.endpoint)
        handoffs = result['handoffs']
        reasons = {h['reason'] for h in handoffs}
        f.note('%.3f' % (time.time() - begun), lie.name,
               [(h['verified'], h['reason'], h['message'][:100]) for h in handoffs])
        f.check((ids, logits) == self.truth, lie.name, 'other tokens or logits: %s %s %s' % (ids, logits, result))
        f.check(not lie.step or source.told > 0, lie.name, 'the lie was never told')
        f.check(len(handoffs) > 0, lie.name, 'no hand-off was tried')
        good = any(h['verified'] for h in handoffs)
        if verified is not None:
            f.check(good == verified, lie.name, 'verified %s, expected %s: %s' % (good, verified, handoffs))
        elif lie.step and not lie.harmless:
            f.check(not good, lie.name, 'accepted: %s' % handoffs)
            f.check(not lie.expect or lie.expect & reasons, lie.name, 'reasons %s, the documents say %s: %s' %
                    (reasons, sorted(lie.expect), handoffs[-1]['message']))
        if idle:
            held = self.worker.wait_idle()
            f.check(not held, lie.name, 'still held: %s' % held)
        return good

    def group(self, title, lies, cap_kb=SMALL_KB):
        group(self.worker, self.failures, title, lies, self.run, self.honest, cap_kb)

    def truths(self, title, truths, cap_kb=SMALL_KB):
        """Honest twins of a group of lies: told in a way as odd, and believed."""
        group(self.worker, self.failures, title, truths, self.honest, self.honest, cap_kb)


def decode_worker(binary, source, failures, *flags, retries=0, plan=False):
    """(worker, ToDecode, its descriptors in the beginning): a new decode worker that has pulled from `source` some times.
    One try each unless `retries` says otherwise: the second would meet the same lie."""
    worker = Worker(binary, 'decode', '--handoff-retries', str(retries), *flags)
    fds = worker.descriptors()
    truth = worker.generate(prompt(), source.endpoint)
    failures.check(any(h['verified'] for h in truth[2]['handoffs']), 'honest source', 'refused: %s' % truth[2])
    to = ToDecode(worker, source, truth[:2], failures, plan)
    warm(to)
    return worker, to, fds


def warm(to):
    """What a worker makes when it is first needed, it has from here on."""
    for _ in range(8):
        to.honest()


class ToPrefill:
    """Lies to a prefill worker, as its receiver."""

    def __init__(self, worker, digest, theirs, failures, receiver=Receiver):
        self.worker, self.failures = worker, failures
        self.fresh = lambda: receiver(worker.endpoint, digest, theirs, prompt()[:BOUNDARY])

    def honest(self):
        for left in range(4, -1, -1):
            try:
                return self.fresh().fetch()
            except (w.Refused, w.Closed) as e:  # As above: a lease of seconds on a busy machine.
                self.failures.check(left > 0, 'honest receiver', repr(e))

    def run(self, case, idle=True):
        f, r, begun = self.failures, self.fresh(), time.time()
        f.cases += 1
        try:
            outcome, text = case.act(r), ''
        except w.Refused as e:
            outcome, text = e.reason, e.text
        except (ValueError, AssertionError, TimeoutError) as e:
            outcome, text = 'trouble', repr(e)
        except (w.Closed, OSError):
            outcome, text = 'closed', ''
        r.close()
        f.note('%.3f' % (time.time() - begun), case.name, outcome, text[:150])
        served = outcome in w.NAMES.values()
        f.check(outcome != 'trouble', case.name, text)
        f.check(case.serves or not served, case.name, 'served with %s' % outcome)
        f.check(served or outcome in ['closed'] + source_lies.KNOWN_REASONS, case.name, 'reason %s' % outcome)
        f.check(not case.expect or outcome in case.expect, case.name,
                '%s, the documents say %s: %s' % (outcome, sorted(case.expect), text))
        if idle:
            held = self.worker.wait_idle()
            f.check(not held, case.name, 'still held: %s' % held)

    def group(self, title, cases, cap_kb=SMALL_KB):
        group(self.worker, self.failures, title, cases, self.run, self.honest, cap_kb)

    def at_once(self, cases):
        """The cases side by side, honest ones meanwhile."""
        threads = side_by_side(self.failures, [lambda c=c: self.run(c, idle=False) for c in cases])
        while any(t.is_alive() for t in threads):
            self.honest()
            time.sleep(0.1)


def side_by_side(failures, jobs):
    def guarded(job):
        try:
            job()
        except Exception:
            failures.check(False, 'the program itself', traceback.format_exc())
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


LARGE = re.compile(r'(?<![0-9a-f])(65536|65537|100000)(?![0-9a-f])|of 1048576|for 10485|of 4194304')


def split(cases):
    """(small, large, of 64 MiB): by what really arrives."""
    cases = list(cases)
    huge = [c for c in cases if '64 MiB that come' in c.name]
    large = [c for c in cases if c not in huge and LARGE.search(c.name)]
    return [c for c in cases if c not in huge and c not in large], large, huge


def some(cases, long, every=3):
    return list(cases)[::1 if long else every]


def end(worker, failures, fds):
    held = worker.wait_idle()
    failures.check(not held, worker.role, 'holds in the end: %s' % held)
    for _ in range(100):  # A connection that was just closed may still be on its way out.
        if worker.descriptors() <= fds + 1:
            break
        time.sleep(0.02)
    failures.check(worker.descriptors() <= fds + 1, worker.role,
                   '%d descriptors, %d in the beginning' % (worker.descriptors(), fds))
    failures.check(worker.alive(), worker.role, 'died:\n' + worker.text()[-3000:])
    failures.check(worker.stop() == 0, worker.role,
                   'exit status %s\n%s' % (worker.process.returncode, worker.text()[-3000:]))


def crowd(worker):
    """What connects that many times at once, and leaves."""
    def run(count):
        wires = [w.Wire.connect(worker.endpoint) for _ in range(count)]
        time.sleep(0.2)
        for wire in wires:
            wire.close()
    return run
