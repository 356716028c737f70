// What some source links can do besides SourceLink: take back what they have granted while another
// thread serves on them, and go on. Thread rule: from any thread.
#ifndef BATON_CONNECTOR_REVOCABLE_H_
#define BATON_CONNECTOR_REVOCABLE_H_

namespace baton {

class Revocable {
 public:
  virtual ~Revocable() = default;
  // SourceLink::RevokeAll, though another thread may be in ServeUntilFrame, which goes on. Waits
  // for a copy inside this process at most, never for the peer. False if something granted may be
  // being read at this moment: then try again or, as for links that cannot do this, Close, wait
  // until ServeUntilFrame has returned, and RevokeAll.
  virtual bool RevokeWhileServing() = 0;
};

}  // namespace baton

#endif  // BATON_CONNECTOR_REVOCABLE_H_
