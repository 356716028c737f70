#include "connector/ucx/ucx_worker.h"

#include <arpa/inet.h>
#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "connector/frame.h"

// How a peer's death could abort the process in UCX 1.13, and why not here. The first active
// message that is longer than a few bytes (ucp_am_send_nbx, ucp_am.c) wants the id of the endpoint
// at the other side: a wire-up request (REQ) goes ahead of it. The receiver's worker makes an
// endpoint to the sender and queues its reply (REP) on it. Over tcp that reply waits in the
// transport's queue until the sender has acknowledged the connection; if the sender's worker or
// process is gone by then, dropping the queue runs into "Assertion ... got REP message"
// (ucp_request.c:684; removed in 1.14, openucx/ucx pull request 8175). Both happen inside one call
// of ucp_worker_progress or ucp_worker_destroy, so no protocol above can step between them.
// ucp_tag_send_nbx sends eager messages without that id: over a transport that connects by worker
// address (tcp, dc) no REQ is ever sent, if settings and environment do not ask for one
// (RESOLVE_REMOTE_EP_ID) and no rendezvous begins (RNDV_THRESH). rc needs REQ and REP to connect
// its queue pairs; there they wait in UCP's own wire-up endpoint, whose queue is dropped without
// that assertion.

namespace baton {
namespace {

constexpr ucp_tag_t kTag = 1;  // of every message; any is taken
constexpr size_t kHeaderMax = 64;
// Posted receives: more than one progress of a tcp connection (64 KiB) completes, so that messages
// rarely wait in, and are copied through, UCX's queue of unexpected ones.
constexpr size_t kReceives = 8;

std::string Text(ucs_status_t status) { return ucs_status_string(status); }

// UCX prints to standard output, which belongs to the program: its lines go into the log instead.
// A dead peer is an event of the network here, so nothing of UCX is above a warning.
ucs_log_func_rc_t LogLine(const char*,  // NOLINT(readability-function-size): the library's
                          unsigned,
                          const char*,
                          ucs_log_level_t level,
                          const ucs_log_component_config_t*,
                          const char* format,
                          va_list args) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_CONTINUE;  // asked for by UCX_LOG_LEVEL
  char text[512];
  std::vsnprintf(text, sizeof text, format, args);
  LogWarning("ucx: " + Printable(text));  // it may quote a peer
  return UCS_LOG_FUNC_RC_STOP;
}

Status Lost(ucs_status_t status) {
  return Reject(Reason::kPeerUnavailable, "ucx: " + Text(status));
}

// Not the environment's to choose, whatever UCX_* says.
ucs_status_t ChooseProtocols(ucp_config_t* config) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  const auto older_than = [&](unsigned m) { return major == 1 && minor < m; };
  ucs_status_t status = ucp_config_modify(config, "RNDV_THRESH", "inf");
  // Should a peer ask for a rendezvous all the same, it is told no address to write to.
  if (status == UCS_OK) status = ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy");
  if (status == UCS_OK && older_than(14))  // the abort above
    status = ucp_config_modify(config, "RESOLVE_REMOTE_EP_ID", "n");
  // In these versions the second protocol family is unfinished and aborts when an endpoint is
  // closed with sends on their way.
  if (status == UCS_OK && older_than(16)) status = ucp_config_modify(config, "PROTO_ENABLE", "n");
  // Connecting must neither hold up a deadline nor end the process: where connect() waits, a peer
  // that leaves between it and the first bytes runs into an assertion (tcp_ep.c, "CTX_TYPE_TX").
  // A transport's own setting goes by its name without a prefix there.
  if (status == UCS_OK)
    status = ucp_config_modify(config, older_than(14) ? "CONN_NB" : "TCP_CONN_NB", "y");
  return status;
}

// Whether an address (v1) names another worker of the host that `own` is of: a byte of version and
// flags, 8 of the worker's id, what tcp over the loopback device is like, and 2 of the port. UCX
// believes the middle, and ends the process at some of what may stand there.
bool IsNeighbour(ByteSpan address, ByteSpan own) {
  constexpr size_t kIdAt = 1;
  constexpr size_t kIdBytes = 8;
  constexpr size_t kPortBytes = 2;
  const auto id = [](ByteSpan a) { return a.subspan(kIdAt, kIdBytes); };
  const auto form = [](ByteSpan a) {
    return a.first(a.size() - kPortBytes).subspan(kIdAt + kIdBytes);
  };
  return address.size() == own.size() && own.size() > kIdAt + kIdBytes + kPortBytes &&
         address[0] == own[0] && !std::ranges::equal(id(address), id(own)) &&
         std::ranges::equal(form(address), form(own));
}

}  // namespace

bool IsLoopbackHost(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return host == "::1" || host == "localhost";
}

StatusOr<std::shared_ptr<UcxContext>> UcxContext::Create(bool loopback) {
  static std::once_flag log_hooked;  // the library has one list of handlers for the process
  std::call_once(log_hooked, [] { ucs_log_push_handler(LogLine); });
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK)
    return absl::UnavailableError("ucx: its settings (UCX_*) do not parse: " + Text(status));
  status = ChooseProtocols(config);
  if (status == UCS_OK && loopback) status = ucp_config_modify(config, "NET_DEVICES", "lo");
  // UCX's shared memory does not report dead peers, so no endpoint would use it.
  if (status == UCS_OK && loopback) status = ucp_config_modify(config, "TLS", "tcp");
  if (status == UCS_OK && loopback) status = ucp_config_modify(config, "ADDRESS_VERSION", "v1");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context* context = nullptr;
  if (status == UCS_OK) status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK)
    return absl::UnavailableError("ucx: cannot start: " + Text(status) +
                                  "; check UCX_TLS and UCX_NET_DEVICES, or use tcp");
  return std::shared_ptr<UcxContext>(new UcxContext(context, loopback));
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

struct UcxWorker::Pending {
  std::byte header[kHeaderMax];
  ucp_dt_iov_t pieces[2];  // header, data: UCX reads this array too, as long as the request lives
  void* request = nullptr;
};

struct UcxWorker::Receive {
  std::vector<std::byte> buffer;
  void* request = nullptr;
};

struct UcxCallbacks {
  static void Failed(void* arg, ucp_ep*, ucs_status_t status) {
    auto* const worker = static_cast<UcxWorker*>(arg);
    if (worker->status_.ok()) worker->status_ = Lost(status);
  }
};

UcxWorker::UcxWorker(std::shared_ptr<UcxContext> context) : context_(std::move(context)) {}

StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(std::shared_ptr<UcxContext> context,
                                                       size_t message_bytes_max) {
  std::unique_ptr<UcxWorker> out(new UcxWorker(std::move(context)));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  // A message whose sender died in the middle of it leaves its receive to the end of the worker.
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
  ucs_status_t status = ucp_worker_create(out->context_->get(), &params, &out->worker_);
  if (status == UCS_OK) status = ucp_worker_get_efd(out->worker_, &out->event_fd_);
  if (status != UCS_OK)
    return absl::UnavailableError("ucx: cannot make a worker: " + Text(status) +
                                  "; check UCX_TLS and UCX_NET_DEVICES, or use tcp");
  if (message_bytes_max != 0) {
    out->receives_.resize(kReceives);
    for (Receive& receive : out->receives_) {
      receive.buffer.resize(message_bytes_max);
      out->Post(&receive);
    }
  }
  return out;
}

void UcxWorker::Post(Receive* receive) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  void* const request = ucp_tag_recv_nbx(worker_, receive->buffer.data(), receive->buffer.size(),
                                         kTag, /*tag_mask=*/0, &param);
  if (UCS_PTR_IS_ERR(request)) {
    if (status_.ok()) status_ = Lost(UCS_PTR_STATUS(request));
    return;
  }
  receive->request = request;
}

void UcxWorker::CancelReceives() {
  for (Receive& receive : receives_) {
    if (receive.request == nullptr) continue;
    ucp_request_cancel(worker_, receive.request);
    // One in the middle of a message cannot be cancelled: its buffer stays until the worker is
    // gone.
    ucp_request_free(receive.request);
    receive.request = nullptr;
  }
  // What came and found no receive posted.
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h message = ucp_tag_probe_nb(worker_, kTag, /*tag_mask=*/0, 1, &info)) {
    ucp_request_param_t param{};
    void* const request = ucp_tag_msg_recv_nbx(worker_, receives_[0].buffer.data(),
                                               receives_[0].buffer.size(), message, &param);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
}

UcxWorker::~UcxWorker() {
  on_message_ = nullptr;
  if (worker_ == nullptr) return;
  if (endpoint_ != nullptr) {
    // By force: whatever is still queued is dropped, and its data is read no more.
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const closing = ucp_ep_close_nbx(endpoint_, &param);
    if (UCS_PTR_IS_PTR(closing)) {
      while (ucp_request_check_status(closing) == UCS_INPROGRESS) ucp_worker_progress(worker_);
      ucp_request_free(closing);
    }
  }
  while (!requests_.empty()) {
    ucp_worker_progress(worker_);
    Reap();
  }
  if (!receives_.empty()) CancelReceives();
  ucp_worker_destroy(worker_);
}

StatusOr<std::vector<uint8_t>> UcxWorker::Address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return absl::UnavailableError("ucx: no worker address: " + Text(status));
  const auto* p = reinterpret_cast<const uint8_t*>(address);
  std::vector<uint8_t> out(p, p + bytes);
  ucp_worker_release_address(worker_, address);
  return out;
}

Status UcxWorker::ConnectTo(ByteSpan address) {
  BATON_CHECK(endpoint_ == nullptr);
  // UCX ends the process at an address of a version it does not know (address.c, "addr version").
  constexpr auto kVersionMask = std::byte{0x0f};
  constexpr auto kVersionMax = std::byte{1};  // v2; none is above, up to UCX 1.22
  if (address.empty() || (address[0] & kVersionMask) > kVersionMax)
    return Reject(Reason::kMalformed, "ucx: a worker address of an unknown version");
  if (context_->loopback()) {
    BATON_ASSIGN_OR_RETURN(const std::vector<uint8_t> own, Address());
    if (!IsNeighbour(address, AsBytes(own)))
      return Reject(Reason::kMalformed,
                    "ucx: no worker address of this host; both sides need the same version and "
                    "settings (UCX_*) of UCX");
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = UcxCallbacks::Failed;
  params.err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint_);
  if (status == UCS_OK) return absl::OkStatus();
  endpoint_ = nullptr;
  return Reject(Reason::kPeerUnavailable,
                "ucx: no way to the peer: " + Text(status) +
                    "; both sides need a common transport that reports dead peers (tcp, rc, dc): "
                    "check UCX_TLS and UCX_NET_DEVICES");
}

Status UcxWorker::Queue(std::unique_ptr<Pending> pending, void* request) {
  if (UCS_PTR_IS_ERR(request)) {
    if (status_.ok()) status_ = Lost(UCS_PTR_STATUS(request));
    return status_;
  }
  if (request == nullptr) {  // done at once
    spare_.push_back(std::move(pending));
  } else {
    pending->request = request;
    requests_.push_back(std::move(pending));
  }
  return absl::OkStatus();
}

Status UcxWorker::Send(ByteSpan header, ByteSpan data) {
  BATON_CHECK(endpoint_ != nullptr && header.size() <= kHeaderMax);
  BATON_RETURN_IF_ERROR(status_);
  std::unique_ptr<Pending> pending;
  if (spare_.empty()) {
    pending = std::make_unique<Pending>();
  } else {
    pending = std::move(spare_.back());
    spare_.pop_back();
  }
  std::memcpy(pending->header, header.data(), header.size());
  pending->pieces[0] = {pending->header, header.size()};
  pending->pieces[1] = {const_cast<std::byte*>(data.data()), data.size()};  // only read
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
  param.datatype = ucp_dt_make_iov();
  void* const request = ucp_tag_send_nbx(endpoint_, pending->pieces, 2, kTag, &param);
  return Queue(std::move(pending), request);
}

Status UcxWorker::Flush() {
  BATON_CHECK(endpoint_ != nullptr);
  ucp_request_param_t param{};
  return Queue(std::make_unique<Pending>(), ucp_ep_flush_nbx(endpoint_, &param));
}

void UcxWorker::Reap() {
  for (size_t i = 0; i < requests_.size();) {
    const ucs_status_t status = ucp_request_check_status(requests_[i]->request);
    if (status == UCS_INPROGRESS) {
      ++i;
      continue;
    }
    if (status != UCS_OK && status_.ok()) status_ = Lost(status);
    ucp_request_free(requests_[i]->request);
    spare_.push_back(std::move(requests_[i]));
    requests_[i] = std::move(requests_.back());
    requests_.pop_back();
  }
}

bool UcxWorker::ReapReceives() {
  bool moved = false;
  for (Receive& receive : receives_) {
    if (receive.request == nullptr) continue;
    ucp_tag_recv_info_t info{};
    const ucs_status_t status = ucp_tag_recv_request_test(receive.request, &info);
    if (status == UCS_INPROGRESS) continue;
    moved = true;
    ucp_request_free(receive.request);
    receive.request = nullptr;
    if (status == UCS_OK) {
      if (on_message_ != nullptr) on_message_(ByteSpan(receive.buffer).first(info.length));
    } else if (status_.ok()) {
      status_ = status == UCS_ERR_MESSAGE_TRUNCATED
                    ? Reject(Reason::kMalformed, absl::StrCat("ucx: message of more than ",
                                                              receive.buffer.size(), " bytes"))
                    : Lost(status);
    }
    Post(&receive);
  }
  return moved;
}

bool UcxWorker::Progress() {
  const size_t before = requests_.size();
  bool moved = ucp_worker_progress(worker_) != 0;
  Reap();
  if (ReapReceives()) moved = true;
  return moved || requests_.size() != before;
}

StatusOr<bool> UcxWorker::Wait(int socket, Duration slice) {
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed != UCS_OK && armed != UCS_ERR_BUSY) return Lost(armed);
  const auto ms =
      std::chrono::ceil<std::chrono::milliseconds>(std::max<Duration>(slice, Duration::zero()));
  pollfd p[2] = {{socket, POLLIN | POLLRDHUP, 0}, {event_fd_, POLLIN, 0}};
  const int n = poll(p, 2, armed == UCS_ERR_BUSY ? 0 : static_cast<int>(ms.count()));
  return n > 0 && p[0].revents != 0;
}

}  // namespace baton
