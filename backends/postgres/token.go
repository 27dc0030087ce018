package rotapostgres

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
)

// newSalt makes the random part of the tokens of one claim.
func newSalt() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]))
}

// token names a lease: its fence, which no other lease of the store has, and the
// random part, which keeps tokens apart should the store lose its last writes.
func token(fence, salt int64) string {
	return fmt.Sprintf("%x-%016x", fence, uint64(salt))
}

// parseToken is the inverse of token; a text that is none gives a fence no lease
// has.
func parseToken(s string) (fence, salt int64) {
	for i := range len(s) {
		if s[i] != '-' {
			continue
		}
		f, err := strconv.ParseInt(s[:i], 16, 64)
		if err != nil || len(s)-i-1 != 16 {
			return -1, 0
		}
		u, err := strconv.ParseUint(s[i+1:], 16, 64)
		if err != nil || token(f, int64(u)) != s {
			return -1, 0
		}
		return f, int64(u)
	}
	return -1, 0
}
