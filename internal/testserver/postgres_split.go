package testserver

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// PostgreSQL splits what clients send to PostgreSQL into requests: the startup
// message, simple queries, and extended queries up to their Sync. A request has
// the name of its first message that the server carries out: STARTUP, QUERY,
// PARSE, BIND, EXECUTE, TERMINATE and so on. Connections must not be encrypted.
func PostgreSQL() Splitter { return &pgSplitter{} }

type pgSplitter struct{ started bool }

// maxPG is more than any message the server takes.
const maxPG = 1 << 30

var pgNames = map[byte]string{
	'Q': "QUERY", 'P': "PARSE", 'B': "BIND", 'E': "EXECUTE", 'D': "DESCRIBE", 'C': "CLOSE", 'H': "FLUSH", 'S': "SYNC", 'X': "TERMINATE",
	'F': "FUNCTION", 'd': "COPYDATA", 'c': "COPYDONE", 'f': "COPYFAIL", 'p': "PASSWORD",
}

func (s *pgSplitter) Next(r *bufio.Reader) (Request, error) {
	if !s.started {
		return s.startup(r)
	}
	var req Request
	for {
		kind, err := r.ReadByte()
		if err != nil {
			if len(req.Raw) > 0 {
				err = unexpected(err)
			}
			return req, err
		}
		name, ok := pgNames[kind]
		if !ok {
			return req, fmt.Errorf("%q where PostgreSQL has the kind of a message", kind)
		}
		req.Raw = append(req.Raw, kind)
		if err := readPGBody(r, &req); err != nil {
			return req, err
		}
		if kind == 'E' || req.Name == "" {
			req.Name = name // an execution says more than what leads to it
		}
		switch kind {
		case 'Q', 'S', 'X', 'F', 'p', 'H', 'c', 'f':
			return req, nil
		}
	}
}

// startup reads the first message, or a request for encryption, after which the
// first message follows.
func (s *pgSplitter) startup(r *bufio.Reader) (Request, error) {
	var req Request
	if err := readPGBody(r, &req); err != nil {
		return req, err
	}
	if len(req.Raw) < 8 {
		return req, fmt.Errorf("a startup message of %d bytes", len(req.Raw))
	}
	switch code := binary.BigEndian.Uint32(req.Raw[4:]); code {
	case 80877103, 80877104:
		req.Name = "ENCRYPT"
	case 80877102:
		req.Name = "CANCEL"
	default:
		req.Name, s.started = "STARTUP", true
	}
	return req, nil
}

// readPGBody appends a length and what it counts.
func readPGBody(r *bufio.Reader, req *Request) error {
	start := len(req.Raw)
	req.Raw = append(req.Raw, make([]byte, 4)...)
	if n, err := io.ReadFull(r, req.Raw[start:]); err != nil {
		if n+start > 0 {
			err = unexpected(err)
		}
		return err
	}
	n := int(binary.BigEndian.Uint32(req.Raw[start:])) - 4
	if n < 0 || n > maxPG {
		return fmt.Errorf("a PostgreSQL message of %d bytes", n)
	}
	start = len(req.Raw)
	req.Raw = append(req.Raw, make([]byte, n)...)
	if _, err := io.ReadFull(r, req.Raw[start:]); err != nil {
		return unexpected(err)
	}
	return nil
}
