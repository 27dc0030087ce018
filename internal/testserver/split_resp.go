package testserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// RESP splits what clients send to Redis and Valkey, in both versions of the
// protocol, into commands.
func RESP() Splitter { return respSplitter{} }

type respSplitter struct{}

// maxRESP is the server's own limit for one string, and more than any count.
const maxRESP = 512 << 20

func (respSplitter) Next(r *bufio.Reader) (Request, error) {
	var req Request
	for {
		line, err := readRESPLine(r, &req)
		if err != nil {
			return req, err
		}
		if len(line) > 0 && line[0] == '*' {
			n, err := respNumber(line[1:])
			if err != nil {
				return req, err
			}
			if n > 0 {
				return req, readRESPArray(r, &req, n)
			}
		} else if words := bytes.Fields(line); len(words) > 0 {
			req.Name = respName(words[0])
			return req, nil
		}
		// An empty line or array is nothing: the server does not answer it.
	}
}

func readRESPArray(r *bufio.Reader, req *Request, n int) error {
	for i := range n {
		line, err := readRESPLine(r, req)
		if err != nil {
			return unexpected(err)
		}
		if len(line) == 0 || line[0] != '$' {
			return fmt.Errorf("%q where RESP has the length of a string", line)
		}
		size, err := respNumber(line[1:])
		if err != nil {
			return err
		}
		if size < 0 {
			return fmt.Errorf("a RESP command with a string of length %d", size)
		}
		start := len(req.Raw)
		req.Raw = append(req.Raw, make([]byte, size+2)...)
		if _, err := io.ReadFull(r, req.Raw[start:]); err != nil {
			return unexpected(err)
		}
		if i == 0 {
			req.Name = respName(req.Raw[start : start+size])
		}
	}
	return nil
}

// readRESPLine appends a line to the request and returns it without its end.
func readRESPLine(r *bufio.Reader, req *Request) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		if len(line)+len(req.Raw) > 0 {
			err = unexpected(err)
		}
		return nil, err
	}
	req.Raw = append(req.Raw, line...)
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

func respNumber(digits []byte) (int, error) {
	n, err := strconv.Atoi(string(digits))
	if err != nil || n > maxRESP {
		return 0, fmt.Errorf("%q where RESP has a number", digits)
	}
	return n, nil
}

func respName(word []byte) string { return string(bytes.ToUpper(word)) }

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
