/* The state plane for C: baton/state_plane.h, which has the promises and what an engine must supply
 * itself, without its on_ask callback. Objects are opaque; each has one function that frees it. A
 * function that can fail takes a baton_error** (may be NULL), which it sets to NULL on success and
 * to an error that the caller frees otherwise. Strings returned live as long as the object they
 * came from. Thread rule: a plane is thread-safe; everything else belongs to one thread at a time.
 */
#ifndef BATON_BATON_H_
#define BATON_BATON_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_plane baton_plane;
typedef struct baton_sequence baton_sequence;
typedef struct baton_lease baton_lease;
typedef struct baton_offer baton_offer;
typedef struct baton_error baton_error;

enum { BATON_GRID = 16 };
typedef enum { BATON_F32 = 0, BATON_BF16 = 1, BATON_F16 = 2 } baton_element;

typedef struct {
  uint32_t layer;
  const char* component;
  baton_element element;
  const int64_t* shape;
  size_t rank;
  const char* axes;
} baton_state_part;

typedef struct {
  const char* name;
  const uint32_t* layers;
  size_t layer_count;
  uint32_t kv_heads;
  uint32_t head_dim;
  baton_element element;
  uint32_t window; /* tokens a query sees, itself included; 0: all */
} baton_kv_group;

typedef struct {
  uint8_t model[32];
  uint8_t numerics[32];
  const baton_state_part* parts;
  size_t part_count;
  const baton_kv_group* groups;
  size_t group_count;
  uint32_t slots;  /* 0: 16 */
  uint32_t blocks; /* 0: 1024 */
  void* memory;    /* NULL: the plane maps its own */
  size_t memory_bytes;
  int memory_fd; /* with `memory`: its memfd, or -1 */
  const char* const* listen;
  size_t listen_count;
  uint32_t lease_ms; /* 0: 30000 */
  const uint8_t* digest_key;
  size_t digest_key_bytes;
} baton_options;

/* "digest_mismatch", ...; "" where there is no code. */
const char* baton_error_reason(const baton_error* error);
const char* baton_error_message(const baton_error* error);
void baton_error_free(baton_error* error);

baton_plane* baton_plane_create(const baton_options* options, baton_error** error);
/* Everything made from the plane must have been freed. */
void baton_plane_free(baton_plane* plane);
size_t baton_memory_bytes(const baton_options* options, baton_error** error);
/* The i-th endpoint as bound, or NULL. */
const char* baton_plane_endpoint(const baton_plane* plane, size_t i);

baton_sequence* baton_begin(baton_plane* plane, const char* tenant, baton_error** error);
baton_sequence* baton_pull(baton_plane* plane,
                           const char* endpoint,
                           const char* tenant,
                           const uint32_t* tokens,
                           size_t count,
                           uint32_t timeout_ms,
                           baton_error** error);
void baton_sequence_free(baton_sequence* sequence);
uint64_t baton_sequence_boundary(const baton_sequence* sequence);
/* 0 on success, -1 and an error otherwise. */
int baton_extend(baton_sequence* sequence, uint64_t tokens, baton_error** error);
int baton_advance(baton_sequence* sequence,
                  const uint32_t* tokens,
                  size_t count,
                  baton_error** error);
void baton_invalidate(baton_sequence* sequence);

baton_lease* baton_pin(baton_sequence* sequence, baton_error** error);
/* NULL if there is no such part or block; else `bytes` (may be NULL) is set. */
void* baton_lease_part(const baton_lease* lease, size_t part, size_t* bytes);
void* baton_lease_block(const baton_lease* lease, size_t group, size_t block, size_t* bytes);
void baton_lease_free(baton_lease* lease);

/* Uses up `sequence`, also on error. */
baton_offer* baton_offer_sequence(baton_sequence* sequence, baton_error** error);
const char* baton_offer_state_id(const baton_offer* offer);
int baton_offer_verify(const baton_offer* offer, baton_error** error);
/* 1 if a peer has pulled it, 0 if the time is over. */
int baton_offer_wait(const baton_offer* offer, uint32_t timeout_ms);
void baton_offer_free(baton_offer* offer);

#ifdef __cplusplus
}
#endif

#endif /* BATON_BATON_H_ */
