// Errors as clients see them: {"error":{"message","type","param","code"}} with vLLM's type names.
// `code` is the HTTP status, or the name of a Reason where state was refused.
// Thread rule: plain values.
#ifndef BATON_SERVER_API_ERROR_H_
#define BATON_SERVER_API_ERROR_H_

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/http.h"

namespace baton::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;   // the request's field, if one is to blame
  std::string reason;  // ReasonName, if state was refused
  int retry_after_s = 0;
};

ApiError BadRequest(std::string_view message, std::string_view param = {});

// kInvalidArgument 400, kNotFound 404, kResourceExhausted 429, kUnavailable 503, others 500. A
// status that carries a Reason is 500 with the reason's name as its code (no_capacity: 429).
ApiError ErrorFromStatus(const Status& status);

// {"error": {...}}
Json ErrorJson(const ApiError& error);
HttpResponse ErrorResponse(const ApiError& error);

}  // namespace baton::server

#endif  // BATON_SERVER_API_ERROR_H_
