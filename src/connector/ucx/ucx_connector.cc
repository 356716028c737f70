#include "connector/ucx/ucx_connector.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "connector/extents.h"
#include "connector/frame.h"
#include "connector/grant_table.h"
#include "connector/revocable.h"
#include "connector/socket_stream.h"
#include "connector/tcp/tcp_socket.h"
#include "connector/ucx/ucx_idle.h"
#include "connector/ucx/ucx_pull.h"
#include "connector/ucx/ucx_worker.h"

namespace baton {
namespace {

// Messages a source has queued at once: 1 MiB is enough to keep the receiver busy.
constexpr size_t kPendingMax = 16;
// UCX addresses have some hundred bytes; several devices make them longer.
constexpr size_t kAddressMax = 16 << 10;

// A context and the workers of it that wait for the next conversation. They hold the context.
struct Shared {
  std::shared_ptr<UcxContext> context;
  UcxIdle idle;
};

// One context for loopback, one for all devices, each made when first needed: making one takes
// milliseconds, and a process that never uses ucx should not pay.
class Contexts {
 public:
  StatusOr<std::shared_ptr<Shared>> For(const Endpoint& endpoint) {
    BATON_ASSIGN_OR_RETURN(const HostPort hp, ParseHostPort(endpoint));
    const bool loopback = IsLoopbackHost(hp.host);
    MutexLock lock(&mu_);
    std::shared_ptr<Shared>& shared = contexts_[loopback];
    if (shared == nullptr) {
      BATON_ASSIGN_OR_RETURN(auto context, UcxContext::Create(loopback));
      shared = std::make_shared<Shared>();
      shared->context = std::move(context);
    }
    return shared;
  }

 private:
  Mutex mu_;
  std::map<bool, std::shared_ptr<Shared>> contexts_ BATON_GUARDED_BY(mu_);
};

// Tells the messages of one conversation from those of another that used the same worker.
uint64_t FreshToken() {
  uint64_t token = 0;
  FillRandom(&token, sizeof token);
  return token;
}

Duration SliceUntil(Instant deadline, const Clock* clock) {
  return std::min<Duration>(deadline - clock->Now(), kPollSlice);
}

// Runs `worker` until `done`, a frame is waiting on the socket (*frame_waits), or an error.
template <class Done>
Status RunUntil(
    UcxWorker* worker, SocketStream* stream, Instant deadline, Done done, bool* frame_waits) {
  *frame_waits = false;
  for (;;) {
    const bool moved = worker->Progress();
    if (done()) return absl::OkStatus();
    BATON_RETURN_IF_ERROR(worker->status());
    if (stream->closed()) return Reject(Reason::kPeerUnavailable, stream->peer() + ": link closed");
    if (stream->clock()->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, stream->peer() + ": deadline passed while waiting");
    if (moved) continue;
    BATON_ASSIGN_OR_RETURN(*frame_waits,
                           worker->Wait(stream->fd(), SliceUntil(deadline, stream->clock())));
    if (*frame_waits) return absl::OkStatus();
  }
}

class UcxLink final : public SocketLink<Link> {
 public:
  UcxLink(std::unique_ptr<SocketStream> stream, std::shared_ptr<Shared> shared)
      : SocketLink<Link>(std::move(stream)), shared_(std::move(shared)) {}
  ~UcxLink() override {
    if (worker_ == nullptr) return;
    worker_->SetOnMessage(nullptr);
    if (clean_) shared_->idle.Keep({}, std::move(worker_));
  }

  Status Pull(std::span<const ReadExtent> extents, std::span<uint64_t> landed, Instant deadline) {
    BATON_RETURN_IF_ERROR(CheckExtents(extents));
    for (size_t i = 0; i < extents.size(); i += kRangesMax) {
      const size_t n = std::min<size_t>(kRangesMax, extents.size() - i);
      BATON_RETURN_IF_ERROR(Read(extents.subspan(i, n), landed.subspan(i, n), deadline));
    }
    return absl::OkStatus();
  }

 private:
  Status Announce(Instant deadline) {
    if (met_) return absl::OkStatus();
    if (worker_ != nullptr)
      return Reject(Reason::kPeerUnavailable, peer() + ": the workers did not meet");
    worker_ = shared_->idle.Take({});
    if (worker_ == nullptr) {
      BATON_ASSIGN_OR_RETURN(worker_, UcxWorker::Create(shared_->context, kUcxMessageBytesMax));
    }
    worker_->SetOnMessage([this](ByteSpan message) {
      // Outside a pull nothing is expected and nothing is written.
      if (pull_ != nullptr && landing_.ok()) landing_ = pull_->Land(message);
    });
    BATON_ASSIGN_OR_RETURN(const std::vector<uint8_t> address, worker_->Address());
    ByteWriter w;
    w.Put(token_);
    w.PutRaw(AsBytes(address));
    BATON_RETURN_IF_ERROR(stream()->SendFrame({FrameType::kWorker, w.Take()}, deadline));
    bool frame_waits = false;
    BATON_RETURN_IF_ERROR(RunUntil(
        worker_.get(), stream(), deadline, [] { return false; }, &frame_waits));
    BATON_ASSIGN_OR_RETURN(const Frame frame, stream()->ReceiveFrame(deadline));
    if (frame.type == FrameType::kError) return DecodeError(frame);
    if (frame.type != FrameType::kWorker)
      return Reject(Reason::kMalformed, absl::StrCat(peer(), ": expected a worker frame, found ",
                                                     static_cast<int>(frame.type)));
    met_ = true;
    return absl::OkStatus();
  }

  Status Read(std::span<const ReadExtent> extents, std::span<uint64_t> landed, Instant deadline) {
    std::vector<PartRange> ranges;
    ranges.reserve(extents.size());
    for (const ReadExtent& e : extents) ranges.push_back({e.state_id, e.part, 0, e.bytes});
    BATON_RETURN_IF_ERROR(Announce(deadline));
    UcxPull pull(token_, ++read_, extents, landed);
    landing_ = absl::OkStatus();
    pull_ = &pull;
    Status status = Exchange(ranges, pull, deadline);
    pull_ = nullptr;
    clean_ = status.ok();
    return status;
  }

  Status Exchange(std::span<const PartRange> ranges, const UcxPull& pull, Instant deadline) {
    BATON_RETURN_IF_ERROR(stream()->SendFrame(EncodeRanges(FrameType::kRead, ranges), deadline));
    bool frame_waits = false;
    BATON_RETURN_IF_ERROR(RunUntil(
        worker_.get(), stream(), deadline, [&] { return pull.done() || !landing_.ok(); },
        &frame_waits));
    if (!landing_.ok()) return landing_;
    // The source says nothing by frames while it serves, unless it refuses. One that was there
    // before the last message must not depend on which of the two was looked at first.
    if (!frame_waits) {
      BATON_ASSIGN_OR_RETURN(frame_waits, worker_->Wait(stream()->fd(), Duration::zero()));
    }
    if (frame_waits) {
      BATON_ASSIGN_OR_RETURN(const Frame frame, stream()->ReceiveFrame(deadline));
      if (frame.type == FrameType::kError) return DecodeError(frame);
      return Reject(Reason::kMalformed,
                    absl::StrCat(peer(), ": frame of type ", static_cast<int>(frame.type),
                                 " in the middle of a read"));
    }
    ByteWriter w;
    w.Put(read_);
    return stream()->SendFrame({FrameType::kLanded, w.Take()}, deadline);
  }

  const std::shared_ptr<Shared> shared_;
  const uint64_t token_ = FreshToken();
  uint64_t read_ = 0;
  bool met_ = false;    // the source's worker has met ours
  bool clean_ = false;  // nothing of this conversation is on its way
  UcxPull* pull_ = nullptr;
  Status landing_;
  std::unique_ptr<UcxWorker> worker_;
};

class UcxSourceLink final : public SocketLink<SourceLink>, public Revocable {
 public:
  UcxSourceLink(std::unique_ptr<SocketStream> stream,
                std::vector<SourceRegion> regions,
                std::shared_ptr<Shared> shared)
      : SocketLink<SourceLink>(std::move(stream)),
        grants_(std::move(regions)),
        shared_(std::move(shared)) {}
  // A read that failed has taken the worker with it.
  ~UcxSourceLink() override {
    if (worker_ != nullptr && worker_->status().ok() && worker_->pending() == 0)
      shared_->idle.Keep(std::move(peer_address_), std::move(worker_));
  }

  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) override {
    return grants_.Grant(parts);
  }
  // A read that ended well was acknowledged, one that did not took its worker with it: nothing is
  // queued between two reads.
  void RevokeAll() override { grants_.RevokeAll(); }
  // In this order: a read that looks into the table from now on finds nothing.
  bool RevokeWhileServing() override {
    grants_.RevokeAll();
    return !reading_;
  }

  StatusOr<Frame> ServeUntilFrame(Instant deadline) override {
    for (;;) {
      BATON_ASSIGN_OR_RETURN(Frame frame, Receive(deadline));
      Status served;
      if (frame.type == FrameType::kWorker)
        served = Meet(frame, deadline);
      else if (frame.type == FrameType::kRead)
        served = ServeRead(frame, deadline);
      else
        return frame;
      if (!served.ok()) {
        worker_.reset();
        Send(EncodeError(served), deadline).IgnoreError();
        return served;
      }
    }
  }

 private:
  Status Meet(const Frame& frame, Instant deadline) {
    constexpr size_t kTokenBytes = sizeof(uint64_t);
    if (worker_ != nullptr || frame.payload.size() <= kTokenBytes ||
        frame.payload.size() > kTokenBytes + kAddressMax)
      return Reject(Reason::kMalformed, absl::StrCat(peer(), ": worker address of ",
                                                     frame.payload.size(), " bytes, or a second"));
    ByteReader r(AsBytes(frame.payload));
    token_ = r.Get<uint64_t>();
    peer_address_.assign(frame.payload.begin() + kTokenBytes, frame.payload.end());
    worker_ = shared_->idle.Take(peer_address_);
    if (worker_ == nullptr) {
      BATON_ASSIGN_OR_RETURN(worker_, UcxWorker::Create(shared_->context, 0));
      BATON_RETURN_IF_ERROR(worker_->ConnectTo(AsBytes(peer_address_)));
      BATON_RETURN_IF_ERROR(worker_->Flush());
      bool frame_waits = false;
      BATON_RETURN_IF_ERROR(RunUntil(
          worker_.get(), stream(), deadline, [this] { return worker_->pending() == 0; },
          &frame_waits));
      if (frame_waits)
        return Reject(Reason::kPeerUnavailable, peer() + ": left while the workers met");
    }
    return Send({FrameType::kWorker, {}}, deadline);
  }

  Status ServeRead(const Frame& frame, Instant deadline) {
    reading_ = true;
    BATON_RETURN_IF_ERROR(Serve(frame, deadline));  // else its worker may still read
    reading_ = false;
    return absl::OkStatus();
  }

  Status Serve(const Frame& read, Instant deadline) {
    BATON_ASSIGN_OR_RETURN(const std::vector<PartRange> ranges,
                           DecodeRanges(FrameType::kRead, read));
    if (worker_ == nullptr)
      return Reject(Reason::kMalformed, peer() + ": a read before the worker's address");
    ++read_;
    // All or nothing: a refused part costs no transfer.
    std::vector<ByteSpan> parts;
    for (const PartRange& range : ranges) {
      BATON_ASSIGN_OR_RETURN(const ByteSpan part, grants_.Resolve(range));
      parts.push_back(part);
    }
    for (size_t i = 0; i < parts.size(); ++i)
      for (uint64_t at = 0; at < parts[i].size(); at += kUcxPieceBytes)
        BATON_RETURN_IF_ERROR(SendPiece({token_, read_, i, at}, parts[i], deadline));
    return AwaitLanded(deadline);
  }

  Status SendPiece(const UcxPiece& piece, ByteSpan part, Instant deadline) {
    const ByteSpan data =
        part.subspan(piece.offset, std::min<uint64_t>(kUcxPieceBytes, part.size() - piece.offset));
    BATON_RETURN_IF_ERROR(worker_->Send(AsBytes(EncodePiece(piece)), data));
    if (worker_->pending() < kPendingMax) return absl::OkStatus();
    bool frame_waits = false;
    BATON_RETURN_IF_ERROR(RunUntil(
        worker_.get(), stream(), deadline, [&] { return worker_->pending() < kPendingMax; },
        &frame_waits));
    if (!frame_waits) return absl::OkStatus();
    // The receiver has nothing to say before all has landed, except that it leaves.
    BATON_ASSIGN_OR_RETURN(const Frame frame, Receive(deadline));
    return Unexpected(frame);
  }

  // A send that UCX calls complete may still be on its way, and needs this side to push it.
  Status AwaitLanded(Instant deadline) {
    bool frame_waits = false;
    BATON_RETURN_IF_ERROR(RunUntil(
        worker_.get(), stream(), deadline, [] { return false; }, &frame_waits));
    BATON_ASSIGN_OR_RETURN(const Frame frame, Receive(deadline));
    if (frame.type != FrameType::kLanded) return Unexpected(frame);
    ByteReader r(AsBytes(frame.payload));
    const uint64_t landed = r.Get<uint64_t>();
    if (!r.done() || landed != read_)
      return Reject(Reason::kMalformed,
                    absl::StrCat(peer(), ": acknowledges read ", landed, ", expected ", read_));
    // What has landed there may not be reported complete here yet (RDMA completes late). The
    // receiver may ask on meanwhile, so its frames end no wait.
    while (worker_->pending() != 0) {
      const bool moved = worker_->Progress();
      BATON_RETURN_IF_ERROR(worker_->status());
      if (stream()->closed() || stream()->clock()->Now() >= deadline)
        return Reject(Reason::kPeerUnavailable,
                      peer() + ": ended before its last message was reported sent");
      if (!moved)
        BATON_RETURN_IF_ERROR(worker_->Wait(-1, SliceUntil(deadline, stream()->clock())).status());
    }
    return absl::OkStatus();
  }

  Status Unexpected(const Frame& frame) const {
    if (frame.type == FrameType::kError) return DecodeError(frame);
    return Reject(Reason::kMalformed,
                  absl::StrCat(peer(), ": frame of type ", static_cast<int>(frame.type),
                               " in the middle of a read"));
  }

  GrantTable grants_;
  std::atomic<bool> reading_{false};  // what the table says, for the peer
  const std::shared_ptr<Shared> shared_;
  uint64_t token_ = 0;
  std::vector<uint8_t> peer_address_;
  uint64_t read_ = 0;
  std::unique_ptr<UcxWorker> worker_;
};

class UcxConnector final : public Connector {
 public:
  explicit UcxConnector(const Clock* clock) : clock_(clock) {}
  std::string_view name() const override { return "ucx"; }

  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override {
    BATON_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
    if (parsed.scheme != name())
      return absl::InvalidArgumentError("'" + endpoint + "' is not a ucx endpoint");
    BATON_ASSIGN_OR_RETURN(auto shared, contexts_.For(parsed));
    shared->idle.LetGo();  // or there may be no descriptor left to connect with
    BATON_ASSIGN_OR_RETURN(Fd fd, ConnectTcpSocket(parsed, deadline, clock_, cancel));
    return std::make_unique<UcxLink>(
        std::make_unique<SocketStream>(std::move(fd), endpoint, clock_), std::move(shared));
  }

  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    PullOutcome out;
    out.landed.assign(extents.size(), 0);
    auto* ucx = dynamic_cast<UcxLink*>(&link);
    // Only this thread's Progress copies to destinations, so the outcome is always quiet.
    out.status = ucx != nullptr ? ucx->Pull(extents, std::span(out.landed), deadline)
                                : absl::InvalidArgumentError("not a link of the ucx connector");
    return out;
  }

 private:
  const Clock* clock_;
  Contexts contexts_;
};

class UcxListener final : public Listener {
 public:
  UcxListener(ListeningSocket socket,
              std::vector<SourceRegion> regions,
              std::shared_ptr<Shared> shared,
              const Clock* clock)
      : loop_(std::move(socket.fd), [idle = &shared->idle] { idle->LetGo(); }),
        endpoint_(std::move(socket.endpoint)),
        regions_(std::move(regions)),
        shared_(std::move(shared)),
        clock_(clock) {}

  StatusOr<std::unique_ptr<SourceLink>> Accept() override {
    BATON_ASSIGN_OR_RETURN(Fd fd, loop_.Next());
    TuneTcpSocket(fd.get());
    return std::make_unique<UcxSourceLink>(
        std::make_unique<SocketStream>(std::move(fd), "peer of " + endpoint_, clock_), regions_,
        shared_);
  }
  void Close() override { loop_.Close(); }
  std::string endpoint() const override { return endpoint_; }
  std::string_view connector_name() const override { return "ucx"; }

 private:
  AcceptLoop loop_;
  const std::string endpoint_;
  const std::vector<SourceRegion> regions_;
  const std::shared_ptr<Shared> shared_;
  const Clock* clock_;
};

}  // namespace

std::unique_ptr<Connector> MakeUcxConnector(const Clock* clock) {
  return std::make_unique<UcxConnector>(clock);
}

StatusOr<std::unique_ptr<Listener>> ListenUcx(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock) {
  const Endpoint endpoint = {"ucx", address};
  Contexts contexts;
  BATON_ASSIGN_OR_RETURN(auto shared, contexts.For(endpoint));
  BATON_ASSIGN_OR_RETURN(ListeningSocket socket, ListenTcpSocket(endpoint));
  return std::make_unique<UcxListener>(std::move(socket), std::move(regions), std::move(shared),
                                       clock);
}

}  // namespace baton
