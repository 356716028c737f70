// Cancellation of blocking work: the standard's stop token under the project's names. A
// CancelSource is kept by whoever may give up, the CancelToken goes to the work, and a
// CancelCallback runs once, in the cancelling thread, to unblock it (say by closing a link). The
// callback's destructor waits for a running callback, so what it refers to may die after it.
// Thread rule: all three are thread-safe.
#ifndef BATON_BASE_CANCEL_H_
#define BATON_BASE_CANCEL_H_

#include <functional>
#include <stop_token>

namespace baton {

using CancelSource = std::stop_source;
// cancelled: token.stop_requested(). A default-constructed token is never cancelled.
using CancelToken = std::stop_token;
using CancelCallback = std::stop_callback<std::function<void()>>;

}  // namespace baton

#endif  // BATON_BASE_CANCEL_H_
