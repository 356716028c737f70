// The part of UCX that the ucx connector uses, with owners: a context (devices and settings), a
// worker (one side of one conversation) and an endpoint (the way to a peer's worker). Only tagged
// messages are used, sent eagerly: they land in bounce buffers of the worker and are handed to a
// callback, so no peer ever holds an address in this process's memory, whatever the transport
// underneath can do.
//
// Why tagged and not active messages: with those UCX first makes an endpoint back to the sender and
// queues an answer to it, and UCX 1.13 aborts the process when the sender is gone by then
// (ucx_worker.cc has the details). An eager tagged message asks for no answer: a worker that only
// receives holds no endpoint, and nothing of it can be queued when its peer dies.
//
// Endpoints are created in error mode PEER: without it a send into a dead process succeeds. What
// the environment (UCX_*) may choose is sizes and, over a network, transports and devices, not
// these things.
//
// UCX reads what a peer sends before this code sees it, and is not hardened against forged bytes:
// ucx is for networks whose hosts are trusted, like RDMA itself.
//
// Thread rule: a context is thread-safe; a worker and its endpoint are used by one thread at a
// time.
#ifndef BATON_CONNECTOR_UCX_UCX_WORKER_H_
#define BATON_CONNECTOR_UCX_UCX_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

struct ucp_context;
struct ucp_ep;
struct ucp_worker;

namespace baton {

class UcxContext {
 public:
  // `loopback`: use tcp over the loopback device only, so that nothing listens on other interfaces
  // and addresses have one form. Unavailable with UCX's reason.
  static StatusOr<std::shared_ptr<UcxContext>> Create(bool loopback);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ucp_context* get() const { return context_; }
  bool loopback() const { return loopback_; }

 private:
  UcxContext(ucp_context* context, bool loopback) : context_(context), loopback_(loopback) {}
  ucp_context* const context_;
  const bool loopback_;
};

// True for 127.0.0.0/8, ::1 and localhost.
bool IsLoopbackHost(const std::string& host);

class UcxWorker {
 public:
  // `message` is valid during the call only. Runs inside Progress.
  using OnMessage = std::function<void(ByteSpan message)>;

  // Receives messages of up to `message_bytes_max` (a longer one is kMalformed), or none if 0.
  static StatusOr<std::unique_ptr<UcxWorker>> Create(std::shared_ptr<UcxContext> context,
                                                     size_t message_bytes_max);
  // Whatever is on its way is dropped, in either direction and at any moment.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // Who takes messages from now on; those that come while it is empty are dropped.
  void SetOnMessage(OnMessage on_message) { on_message_ = std::move(on_message); }

  // What a peer's ConnectTo takes.
  StatusOr<std::vector<uint8_t>> Address() const;
  // The worker's one endpoint. kPeerUnavailable if no transport of both sides reaches the peer.
  // kMalformed over loopback if the address differs from this worker's own in more than the
  // worker's id and port, and everywhere if UCX does not know its version. What else may be wrong
  // with an address that came over a network is up to UCX, which trusts it.
  Status ConnectTo(ByteSpan address);

  // Queues a flush: once pending() is 0, the endpoint takes messages. Over tcp the way to the peer
  // may still be tried then; that it fails shows in status().
  Status Flush();
  // Queues one message, `header` and then `data`, to the endpoint; `header` is copied, `data` must
  // stay readable until pending() has fallen below what it was. kPeerUnavailable once the peer is
  // lost.
  Status Send(ByteSpan header, ByteSpan data);
  // Messages whose data UCX still reads.
  size_t pending() const { return requests_.size(); }

  // Does what can be done without waiting, callbacks included. True if anything was.
  bool Progress();
  // Waits until Progress has something to do, `socket` is readable, or `slice` has passed. True if
  // the socket is readable.
  StatusOr<bool> Wait(int socket, Duration slice);

  // The first failure of the endpoint, e.g. a peer that died.
  const Status& status() const { return status_; }

 private:
  struct Pending;
  struct Receive;
  explicit UcxWorker(std::shared_ptr<UcxContext> context);
  Status Queue(std::unique_ptr<Pending> pending, void* request);
  void Post(Receive* receive);
  void CancelReceives();
  void Reap();
  bool ReapReceives();

  const std::shared_ptr<UcxContext> context_;
  OnMessage on_message_;
  ucp_worker* worker_ = nullptr;
  ucp_ep* endpoint_ = nullptr;
  int event_fd_ = -1;
  std::vector<std::unique_ptr<Pending>> requests_;  // headers live as long as the request
  std::vector<std::unique_ptr<Pending>> spare_;
  std::vector<Receive> receives_;  // posted, each with a bounce buffer
  Status status_;

  friend struct UcxCallbacks;
};

}  // namespace baton

#endif  // BATON_CONNECTOR_UCX_UCX_WORKER_H_
