package rotapostgres

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// newSalt makes the random part of the tokens of one claim.
func newSalt() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]))
}

// token names a lease: its fence, which no other lease of the store has, and the
// random part, which keeps tokens apart should the store lose its last writes. The
// part between them is where the lane was as it was claimed, and only a hint.
func token(fence, salt int64, tid pgtype.TID) string {
	return fmt.Sprintf("%x-%x-%016x", fence, uint64(tid.BlockNumber)<<16|uint64(tid.OffsetNumber), uint64(salt))
}

// parseToken is the inverse of token; a text that is none gives a fence no lease
// has.
func parseToken(s string) (fence, salt int64, tid pgtype.TID) {
	part := strings.SplitN(s, "-", 3)
	if len(part) == 3 {
		f, err := strconv.ParseInt(part[0], 16, 64)
		at, err2 := strconv.ParseUint(part[1], 16, 48)
		u, err3 := strconv.ParseUint(part[2], 16, 64)
		tid = pgtype.TID{BlockNumber: uint32(at >> 16), OffsetNumber: uint16(at), Valid: true}
		if err == nil && err2 == nil && err3 == nil && token(f, int64(u), tid) == s {
			return f, int64(u), tid
		}
	}
	return -1, 0, pgtype.TID{}
}
