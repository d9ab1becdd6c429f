/* pagewire/experimental/renamed.h: C names from before the first release, which deletes this file. pagewire_experimental.h includes it. */
#ifndef PAGEWIRE_EXPERIMENTAL_RENAMED_H
#define PAGEWIRE_EXPERIMENTAL_RENAMED_H

#define PW_STORE_TOKEN_SIZE PW_TRANSACTION_STORE_TOKEN_SIZE
#define pw_store pw_transaction_store
#define pw_store_options pw_transaction_store_options
#define pw_store_token pw_transaction_store_token
#define pw_store_make pw_transaction_store_make
#define pw_store_export pw_transaction_store_export
#define pw_store_serve pw_transaction_store_serve
#define pw_store_replace pw_transaction_store_replace
#define pw_store_cell pw_transaction_store_cell
#define pw_store_check pw_transaction_store_check
#define pw_store_free pw_transaction_store_free

#endif /* PAGEWIRE_EXPERIMENTAL_RENAMED_H */
