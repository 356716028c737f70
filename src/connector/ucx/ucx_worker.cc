#include "connector/ucx/ucx_worker.h"

#include <arpa/inet.h>
#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

#if defined(__SANITIZE_ADDRESS__)
// An abandoned worker (ucx_worker.h) holds memory by pointers that the leak checker cannot follow.
extern "C" const char* __lsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libucs.so\nleak:libucp.so\nleak:libuct.so\n";
}
#endif

namespace baton {
namespace {

constexpr unsigned kMessageId = 1;
constexpr size_t kHeaderMax = 64;
constexpr int kAbandonedMax = 64;
std::atomic<int> abandoned{0};

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
  LogWarning(absl::StrCat("ucx: ", text));
  return UCS_LOG_FUNC_RC_STOP;
}

Status Lost(ucs_status_t status) {
  return Reject(Reason::kPeerUnavailable, "ucx: " + Text(status));
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
  // Not the environment's to choose: in these versions the second protocol family is unfinished and
  // aborts when an endpoint is closed with sends on their way.
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  if (major == 1 && minor < 16) status = ucp_config_modify(config, "PROTO_ENABLE", "n");
  if (status == UCS_OK && loopback) status = ucp_config_modify(config, "NET_DEVICES", "lo");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context* context = nullptr;
  if (status == UCS_OK) status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK)
    return absl::UnavailableError("ucx: cannot start: " + Text(status) +
                                  "; check UCX_TLS and UCX_NET_DEVICES, or use tcp");
  return std::shared_ptr<UcxContext>(new UcxContext(context));
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

struct UcxWorker::Pending {
  std::byte header[kHeaderMax];
  void* request = nullptr;
};

struct UcxCallbacks {
  static ucs_status_t Message(void* arg,  // NOLINT(readability-function-size): the library's
                              const void* header,
                              size_t header_bytes,
                              void* data,
                              size_t bytes,
                              const ucp_am_recv_param_t* param) {
    auto* const worker = static_cast<UcxWorker*>(arg);
    // A rendezvous would have the sender's side choose how bytes reach a buffer named to it.
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      if (worker->status_.ok())
        worker->status_ = Reject(Reason::kMalformed, "ucx: the peer asks for a rendezvous");
      return UCS_OK;
    }
    if (worker->on_message_ != nullptr)
      worker->on_message_({static_cast<const std::byte*>(header), header_bytes},
                          {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
  }

  static void Failed(void* arg, ucp_ep*, ucs_status_t status) {
    auto* const worker = static_cast<UcxWorker*>(arg);
    if (worker->status_.ok()) worker->status_ = Lost(status);
  }
};

UcxWorker::UcxWorker(std::shared_ptr<UcxContext> context) : context_(std::move(context)) {}

StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(std::shared_ptr<UcxContext> context,
                                                       OnMessage on_message) {
  std::unique_ptr<UcxWorker> out(new UcxWorker(std::move(context)));
  out->on_message_ = std::move(on_message);
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(out->context_->get(), &params, &out->worker_);
  if (status == UCS_OK) status = ucp_worker_get_efd(out->worker_, &out->event_fd_);
  if (status == UCS_OK) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = UcxCallbacks::Message;
    handler.arg = out.get();
    status = ucp_worker_set_am_recv_handler(out->worker_, &handler);
  }
  if (status != UCS_OK)
    return absl::UnavailableError("ucx: cannot make a worker: " + Text(status) +
                                  "; check UCX_TLS and UCX_NET_DEVICES, or use tcp");
  return out;
}

UcxWorker::~UcxWorker() {
  on_message_ = nullptr;
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
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
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
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  void* const request = ucp_am_send_nbx(endpoint_, kMessageId, pending->header, header.size(),
                                        data.data(), data.size(), &param);
  if (UCS_PTR_IS_ERR(request)) {
    if (status_.ok()) status_ = Lost(UCS_PTR_STATUS(request));
    return status_;
  }
  if (request == nullptr) {  // sent at once
    spare_.push_back(std::move(pending));
  } else {
    pending->request = request;
    requests_.push_back(std::move(pending));
  }
  return absl::OkStatus();
}

Status UcxWorker::Flush() {
  BATON_CHECK(endpoint_ != nullptr);
  auto pending = std::make_unique<Pending>();
  ucp_request_param_t param{};
  void* const request = ucp_ep_flush_nbx(endpoint_, &param);
  if (UCS_PTR_IS_ERR(request)) {
    if (status_.ok()) status_ = Lost(UCS_PTR_STATUS(request));
    return status_;
  }
  if (request != nullptr) {
    pending->request = request;
    requests_.push_back(std::move(pending));
  }
  return absl::OkStatus();
}

bool UcxWorker::TooManyAbandoned() { return abandoned.load() >= kAbandonedMax; }

bool UcxWorker::Abandon(std::unique_ptr<UcxWorker> worker) {
  worker->on_message_ = nullptr;
  const int count = ++abandoned;
  LogWarning(absl::StrCat("ucx: a peer left before its worker had met ours; ", count, " of ",
                          kAbandonedMax, " kept until the process ends"));
  static std::mutex mu;
  static auto* const kept = new std::vector<std::unique_ptr<UcxWorker>>();  // never destroyed
  const std::lock_guard<std::mutex> lock(mu);
  kept->push_back(std::move(worker));
  return count < kAbandonedMax;
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

bool UcxWorker::Progress() {
  const size_t before = requests_.size();
  const bool moved = ucp_worker_progress(worker_) != 0;
  Reap();
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
