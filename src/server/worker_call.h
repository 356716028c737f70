// POST /internal/generate: one GenerateRequest of a router, answered by lines of JSON
// (generation_json.h). Closing the connection cancels the generation.
// Thread rule: lives on its exchange's thread; Abort from any thread.
#ifndef BATON_SERVER_WORKER_CALL_H_
#define BATON_SERVER_WORKER_CALL_H_

#include <memory>
#include <string_view>

#include "engine/generator.h"
#include "server/active_calls.h"
#include "server/http.h"

namespace baton::server {

class WorkerCall final : public std::enable_shared_from_this<WorkerCall> {
 public:
  // `generator` must outlive the call.
  WorkerCall(engine::Generator* generator, std::shared_ptr<Exchange> exchange)
      : generator_(generator), exchange_(std::move(exchange)) {}

  void Run(std::string_view body, ActiveCalls* calls);

  // Cancels; the router then sees a cancelled result that it did not ask for and goes elsewhere.
  void Abort();

  // The answer to a request that does not run: {"error": status} with a fitting HTTP code.
  static void Refuse(const Status& status, Exchange* exchange);

 private:
  engine::Generator* const generator_;
  const std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<engine::Generation> generation_;
  std::unique_ptr<ActiveCalls::Ticket> ticket_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_WORKER_CALL_H_
