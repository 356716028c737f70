#include "cli/blocking_http.h"

#include <memory>
#include <utility>

#include "base/mutex.h"

namespace baton::cli {
namespace {

class Waiter final : public server::ClientHandler {
 public:
  explicit Waiter(std::function<void(std::string_view)> on_data) : on_data_(std::move(on_data)) {}
  void OnHead(int status, const server::HttpHeaders&) override {
    MutexLock lock(&mu_);
    answer_.status = status;
  }
  void OnData(std::string_view data) override {
    if (on_data_) on_data_(data);
    MutexLock lock(&mu_);
    answer_.body.append(data);
  }
  void OnDone(const Status& status) override {
    MutexLock lock(&mu_);
    status_ = status;
    done_ = true;
    cv_.NotifyAll();
  }
  StatusOr<HttpAnswer> Wait() {
    MutexLock lock(&mu_);
    while (!done_) cv_.Wait(&mu_);
    if (!status_.ok()) return status_;
    return std::move(answer_);
  }

 private:
  const std::function<void(std::string_view)> on_data_;
  Mutex mu_;
  CondVar cv_;
  HttpAnswer answer_ BATON_GUARDED_BY(mu_);
  Status status_ BATON_GUARDED_BY(mu_);
  bool done_ BATON_GUARDED_BY(mu_) = false;
};

// "http://host:port/path" -> request with address and target.
StatusOr<server::ClientRequest> RequestFor(const std::string& url) {
  const size_t host = url.find("://");
  const size_t slash = url.find('/', host == std::string::npos ? 0 : host + 3);
  server::ClientRequest request;
  BATON_ASSIGN_OR_RETURN(request.address, server::ParseHttpAddress(url.substr(0, slash)));
  if (slash != std::string::npos) request.target = url.substr(slash);
  request.connect_ms = 1000;
  return request;
}

}  // namespace

BlockingHttp::BlockingHttp() : client_(&io_, {}) {}
BlockingHttp::~BlockingHttp() { io_.Stop(); }

StatusOr<HttpAnswer> BlockingHttp::Get(const std::string& url) {
  BATON_ASSIGN_OR_RETURN(server::ClientRequest request, RequestFor(url));
  request.head_ms = 5000;
  return Call(std::move(request), nullptr);
}

StatusOr<HttpAnswer> BlockingHttp::Post(const std::string& url,
                                        const std::string& json,
                                        const std::function<void(std::string_view)>& on_data) {
  BATON_ASSIGN_OR_RETURN(server::ClientRequest request, RequestFor(url));
  request.method = "POST";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = json;
  request.head_ms = 120'000;
  return Call(std::move(request), on_data);
}

StatusOr<HttpAnswer> BlockingHttp::Call(server::ClientRequest request,
                                        const std::function<void(std::string_view)>& on_data) {
  auto waiter = std::make_shared<Waiter>(on_data);
  client_.Start(std::move(request), waiter);
  return waiter->Wait();
}

}  // namespace baton::cli
