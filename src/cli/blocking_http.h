// HTTP calls that wait, for `up` and `demo`. Thread rule: one thread.
#ifndef BATON_CLI_BLOCKING_HTTP_H_
#define BATON_CLI_BLOCKING_HTTP_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http_client.h"
#include "server/io_pool.h"

namespace baton::cli {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

class BlockingHttp {
 public:
  BlockingHttp();
  ~BlockingHttp();

  StatusOr<HttpAnswer> Get(const std::string& url);
  // `on_data` sees the body piece by piece (for SSE); may be null.
  StatusOr<HttpAnswer> Post(const std::string& url,
                            const std::string& json,
                            const std::function<void(std::string_view)>& on_data = nullptr);

 private:
  StatusOr<HttpAnswer> Call(server::ClientRequest request,
                            const std::function<void(std::string_view)>& on_data);
  server::IoPool io_{1};
  server::HttpClient client_;
};

}  // namespace baton::cli

#endif  // BATON_CLI_BLOCKING_HTTP_H_
