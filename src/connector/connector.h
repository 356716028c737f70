// Byte movers between two nodes: a Link carries small checked frames, a Connector pulls bulk bytes
// into the receiver's own memory. A connector knows no tokens, layouts or digests, decides nothing,
// and never writes anywhere but into the destination spans of the Pull that is running; whether the
// bytes are the right ones is decided by handoff/verify.h alone.
//
// Pull is receiver-driven: no peer ever holds an address in receiver memory. When Pull has
// returned, nobody writes to its destinations any more (PullOutcome::quiet says so explicitly, for
// connectors that cannot promise it). One Link serves one hand-off.
//
// The source side is a Listener that accepts SourceLinks. A SourceLink can serve only parts granted
// to it: any other (state-id, part) or range is answered with an error frame.
//
// Endpoints are strings: "tcp:HOST:PORT", "ucx:HOST:PORT", "shm:PATH" or "shm:@ABSTRACT",
// "inproc:NAME".
//
// Deadlines are Instants of the Clock given to the connector. Thread rule: a Link is used by one
// thread; Close and Interrupt may be called from others, and one other thread may be in
// WaitReadable while this one sends. Connectors and Listeners are
// thread-safe.
#ifndef BATON_CONNECTOR_CONNECTOR_H_
#define BATON_CONNECTOR_CONNECTOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"

namespace baton {

// Name of one part inside a bundle; the hand-off defines its encoding, connectors compare it only.
using PartKey = StrongInt<struct PartKeyTag, uint64_t>;

// Kinds of frames on a link (docs/format/wire.md). 1..15 belong to the hand-off conversation,
// 16.. to connectors.
enum class FrameType : uint16_t {
  kHello = 1,    // identity of a node, both ways
  kAsk = 2,      // receiver -> source: what it will accept
  kOffer = 3,    // source -> receiver: what it grants
  kRelease = 4,  // receiver -> source: done, free it
  kError = 5,    // either way: a reason and a text; the link closes after it
  kBlocks = 6,   // source -> receiver: blocks granted before the bundle is sealed
  kNext = 7,     // receiver -> source: those blocks are pulled, go on
  kJoin = 8,     // receiver -> source: this link carries bytes of another link's hand-off
  kJoined = 9,   // source -> receiver: what that hand-off has granted is granted here too
  kRead = 16,    // receiver -> source: extents to send
  kData = 17,    // source -> receiver: table of extents, then their raw bytes
  kArena = 18,   // shm: announces the file descriptors of the source's regions
  kWorker = 19,  // ucx, receiver -> source, answered by an empty one: where its messages are to go
  kLanded = 20,  // ucx, receiver -> source: all bytes of the last kRead have landed
};

struct Frame {
  FrameType type = FrameType::kError;
  std::vector<uint8_t> payload;
};

// Largest payload of any frame; a header that claims more is malformed.
inline constexpr size_t kFramePayloadMax = size_t{64} << 20;

// One conversation with one peer. Destroying it closes it.
class Link {
 public:
  virtual ~Link() = default;
  // Blocks until the frame is handed to the transport. Errors: kPeerUnavailable (closed, reset or
  // deadline passed).
  virtual Status Send(const Frame& frame, Instant deadline) = 0;
  // Blocks for the next frame. Errors: kPeerUnavailable as above, kMalformed if the bytes are not
  // a frame (the link is then unusable).
  virtual StatusOr<Frame> Receive(Instant deadline) = 0;

  enum class Event { kReadable, kInterrupted, kDeadline };
  // Blocks until a Receive would not block (kReadable: a frame, garbage, or the peer is gone),
  // Interrupt was called, or the deadline passed.
  virtual Event WaitReadable(Instant deadline) = 0;
  // Makes the current or next WaitReadable return kInterrupted, once. From any thread.
  virtual void Interrupt() = 0;
  // Ends the conversation and unblocks every call in it. From any thread; repeatable.
  virtual void Close() = 0;
  // For messages: "tcp 127.0.0.1:9001".
  virtual std::string peer() const = 0;
};

// One contiguous piece the receiver wants, and where to.
struct ReadExtent {
  StateId state_id;
  PartKey part;
  // As the offer gave them; checked against the region's real size before any access.
  uint32_t region = 0;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;           // == destination.size()
  MutableByteSpan destination;  // memory of the receiver, its own until Pull returns
};

// The writers of a pull that could not be stopped when it returned. Kept with the quarantined
// ranges and asked now and then. Thread rule: thread-safe.
class WritersLeft {
 public:
  virtual ~WritersLeft() = default;
  // True once none of them can touch a destination of that pull any more; stays true. Never blocks.
  virtual bool Quiet() = 0;
};

struct PullOutcome {
  Status status;
  // Per extent, in the order asked: bytes the connector says it wrote. Short on any error.
  std::vector<uint64_t> landed;
  // False if some writer may still touch the destinations: they must be quarantined.
  bool quiet = true;
  // Set if !quiet and the connector will know when they fall silent. Null: it never will, and the
  // ranges stay quarantined for the life of the process.
  std::shared_ptr<WritersLeft> writers_left;
};

// Receiver side of one kind of transport.
class Connector {
 public:
  virtual ~Connector() = default;
  // "inproc", "shm", "tcp", "ucx": the endpoint's scheme and the metric label.
  virtual std::string_view name() const = 0;
  // Errors: InvalidArgument for an endpoint that does not parse, kPeerUnavailable if nobody
  // answers before the deadline, kCancelled.
  virtual StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                                  Instant deadline,
                                                  const CancelToken& cancel) = 0;
  // Moves all extents over a link of this connector. At most the destination spans are written.
  // Errors: kPeerUnavailable, kPeerError (the source's error frame; its own reason is kept where
  // it has one), kMalformed, kUnknownPart, kShortTransfer.
  virtual PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) = 0;
};

// A range of source memory that parts may lie in (an arena). `fd` is its memfd, or -1 where the
// memory has none; shm needs it.
struct SourceRegion {
  ByteSpan bytes;
  int fd = -1;
};

// A part the current offer lets the peer read: bytes inside one of the listener's regions, kept
// alive by the caller until RevokeAll.
struct GrantedPart {
  StateId state_id;
  PartKey part;
  ByteSpan bytes;
};

struct ExtentAddress {
  uint32_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Source side of one conversation.
class SourceLink : public Link {
 public:
  // Lets the peer read these parts, besides those granted before, and returns the address of each,
  // to be put into the offer. Links of listeners with the same regions give the same address to the
  // same bytes. May be called while another thread is in ServeUntilFrame.
  // Errors: InvalidArgument if a part lies outside every region or is granted already.
  virtual StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) = 0;
  // From its return on, nothing granted on this link is read by this process for the peer. (A shm
  // peer has the arena mapped and can still read; its digests then fail.) Not while another thread
  // is in ServeUntilFrame: Close first, and wait until it has returned.
  virtual void RevokeAll() = 0;
  // Serves reads until another frame arrives, and returns that. A refused read is answered with an
  // error frame and returned as an error. Errors as Receive; deadline: kPeerUnavailable.
  virtual StatusOr<Frame> ServeUntilFrame(Instant deadline) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Blocks for the next peer. Errors: Unavailable once closed. Never fails for a peer's sake.
  virtual StatusOr<std::unique_ptr<SourceLink>> Accept() = 0;
  // Unblocks Accept and refuses new peers. From any thread; repeatable.
  virtual void Close() = 0;
  // What a peer passes to Connect; port 0 is replaced by the port bound.
  virtual std::string endpoint() const = 0;
  virtual std::string_view connector_name() const = 0;
};

// "tcp:127.0.0.1:9001" -> {"tcp", "127.0.0.1:9001"}. InvalidArgument names what is wrong.
struct Endpoint {
  std::string scheme;
  std::string address;
};
StatusOr<Endpoint> ParseEndpoint(const std::string& endpoint);

}  // namespace baton

#endif  // BATON_CONNECTOR_CONNECTOR_H_
