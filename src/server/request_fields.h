// The table of request fields that are known but not obeyed. Thread rule: free functions.
#ifndef BATON_SERVER_REQUEST_FIELDS_H_
#define BATON_SERVER_REQUEST_FIELDS_H_

#include "server/field_reader.h"

namespace baton::server {

enum class Endpoint { kCompletions, kChat };

// Records an error for the first field that is unknown, or known and neither supported nor set to
// a value that changes nothing.
void CheckFields(const OrderedJson& body, Endpoint endpoint, FieldReader* reader);

}  // namespace baton::server

#endif  // BATON_SERVER_REQUEST_FIELDS_H_
