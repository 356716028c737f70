// A source in a process of its own, for tests that kill it: connector_source ENDPOINT BYTES prints
// the endpoint it listens on, grants BYTES of memory in 16 parts to the first peer, says where by a
// kOffer frame, and serves until it is killed or the peer leaves.
#include <cstdio>
#include <cstdlib>

#include "connector/conformance/conformance_fixture.h"

int main(int argc, char** argv) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (argc != 3) return 2;
  const size_t bytes = std::strtoull(argv[2], nullptr, 10);
  const MonotonicClock clock;
  const SharedMemory memory(bytes);
  auto listener = Listen({argv[1], {memory.region()}, &clock, nullptr});
  if (!listener.ok()) return 3;
  std::printf("%s\n", (*listener)->endpoint().c_str());
  std::fflush(stdout);
  auto source = (*listener)->Accept();
  if (!source.ok()) return 4;
  std::vector<GrantedPart> parts;
  for (size_t i = 0; i < 16; ++i)
    parts.push_back({StateId(), PartKey(i), memory.bytes().subspan(i * (bytes / 16), bytes / 16)});
  const auto addresses = (*source)->Grant(parts);
  if (!addresses.ok()) return 5;
  ByteWriter w;
  for (const ExtentAddress& a : *addresses) {
    w.Put(a.region);
    w.Put(a.offset);
  }
  const Instant deadline = clock.Now() + std::chrono::seconds(60);
  if (!(*source)->Send({FrameType::kOffer, w.Take()}, deadline).ok()) return 6;
  return (*source)->ServeUntilFrame(deadline).ok() ? 0 : 7;
}
