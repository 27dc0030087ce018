package testserver

import "bufio"

// Splitter cuts a client's byte stream into requests. One splitter serves one
// connection, so it may remember what came before (a startup message, say).
type Splitter interface {
	// Next reads exactly one whole request. Bytes that are no request and get
	// no reply are part of the request that follows them. At the stream's end
	// it returns io.EOF or io.ErrUnexpectedEOF, at bytes that cannot be of the
	// protocol another error.
	Next(r *bufio.Reader) (Request, error)
}

// Request is one request of a client. It must not be changed.
type Request struct {
	// Name is what the protocol calls the request, such as EVALSHA.
	Name string
	// Raw is the whole request as it came.
	Raw []byte
}
