"""The real `baton serve` as the thing under attack: start, ask, measure, stop. Loopback only."""

import atexit
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

# Few tokens a step, so that a short prompt is computed in several and BLOCKS comes; no prefix cache, so that every request
# needs its hand-off; a small budget, so that what a worker could ever touch on purpose is small beside a leak.
FLAGS = ['--port', '0', '--no-enable-prefix-caching', '--max-num-batched-tokens', '32', '--max-num-seqs', '8',
         '--threads', '1', '--memory-bytes', '48MB', '--shutdown-timeout', '5']


class Worker:
    def __init__(self, binary, role, *flags, listen='tcp:127.0.0.1:0', before=None):
        """`before`: runs in the new process ahead of the program."""
        self.role = role
        self.log = tempfile.NamedTemporaryFile('w+', prefix='hostile-%s-' % role, suffix='.log')
        command = [binary, 'serve', '--role', role, '--handoff-listen', listen] + FLAGS + list(flags)
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, preexec_fn=before)
        atexit.register(self.stop)  # Whatever goes wrong here, no worker stays behind.
        self.host, self.port = self._wait_ready()
        self.endpoint = self.health()['handoff'][listen.split(':')[0]]

    def _wait_ready(self):
        for _ in range(600):
            found = re.search(r'serving at http://([0-9.]+):(\d+)', self.text())
            if found:
                return found.group(1), int(found.group(2))
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError('the %s worker did not start:\n%s' % (self.role, self.text()))

    def text(self):
        with open(self.log.name, errors='replace') as f:
            return f.read()

    def alive(self):
        return self.process.poll() is None

    def _get(self, path):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.request('GET', path)
        data = connection.getresponse().read()
        connection.close()
        return data.decode()

    def health(self):
        return json.loads(self._get('/health'))

    def metrics(self):
        """Name (with the labels other than the model's) to value."""
        found = re.findall(r'^baton:([a-z_]+)\{model_name="[^"]*",?([^}]*)\} ([0-9.e+-]+)$', self._get('/metrics'), re.M)
        return {name + ('{%s}' % labels if labels else ''): float(value) for name, labels, value in found}

    def held(self):
        m = self.metrics()
        return {name: m[name] for name in ('state_slots_used', 'memory_used_bytes', 'quarantined_bytes',
                                           'num_requests_running', 'num_requests_waiting')}

    def wait_idle(self, seconds=10):
        """Everything held is zero, or what is still held after `seconds`."""
        for _ in range(int(seconds * 50)):
            held = {k: v for k, v in self.held().items() if v}
            if not held:
                return {}
            time.sleep(0.02)
        return held

    def memory_kb(self, field='VmRSS'):
        with open('/proc/%d/status' % self.process.pid) as f:
            return int(re.search(field + r':\s+(\d+)', f.read()).group(1))

    def reset_peak(self):
        with open('/proc/%d/clear_refs' % self.process.pid, 'w') as f:
            f.write('5')

    def descriptors(self):
        return len(os.listdir('/proc/%d/fd' % self.process.pid))

    def generate(self, prompt, endpoint, max_tokens=6, timeout=60):
        """(ids, last logits hash, result) of a request whose prompt is to be pulled from `endpoint`."""
        body = {'prompt': prompt, 'prompt_len': len(prompt), 'conversation_len': len(prompt) - 1, 'cache_salt_hex': '',
                'logits_hash': None, 'prefill_endpoint': endpoint, 'label': 'hostile',
                'sampling': {'temperature': 0, 'top_k': 0, 'top_p': 1, 'min_p': 0, 'repetition_penalty': 1,
                             'presence_penalty': 0, 'frequency_penalty': 0, 'logit_bias': [], 'prompt_logprobs': -1, 'seed': 1,
                             'max_tokens': max_tokens, 'min_tokens': max_tokens, 'ignore_eos': True,
                             'stop_token_ids': [], 'logprobs': 0}}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request('POST', '/internal/generate', json.dumps(body), {'Content-Type': 'application/json'})
            answer = connection.getresponse()
            lines = [json.loads(line) for line in answer.read().splitlines() if line]
        except (http.client.HTTPException, OSError) as e:
            time.sleep(0.5)
            raise RuntimeError('%r; the %s worker has status %s\n%s' % (e, self.role, self.process.poll(), self.text()[-6000:]))
        connection.close()
        if answer.status != 200:
            raise RuntimeError('HTTP %d: %s' % (answer.status, lines))
        tokens = [t for line in lines for t in line.get('tokens', [])]
        return [t[0] for t in tokens], tokens[-1][2] if tokens else '', lines[-1]['result']

    def stop(self):
        """Exit status after SIGTERM."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode
