package testserver

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRESPSplitsCommands(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 200<<10)
	whole := []string{
		"*1\r\n$4\r\nping\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n*1\r\n", // the value looks like RESP
		"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
		"*2\r\n$4\r\nECHO\r\n$204800\r\n" + big + "\r\n",
		"\r\n*0\r\n  get  k\r\n", // nothing, nothing, then an inline command
		"*1\r\n$4\r\nQUIT\r\n",
	}
	names := []string{"PING", "SET", "ECHO", "ECHO", "GET", "QUIT"}
	for _, wrap := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r },
		iotest.OneByteReader,
		iotest.HalfReader,
	} {
		r := bufio.NewReader(wrap(strings.NewReader(strings.Join(whole, ""))))
		split := RESP()
		for i, want := range whole {
			req, err := split.Next(r)
			if err != nil || string(req.Raw) != want || req.Name != names[i] {
				t.Fatalf("request %d: %s (%d bytes), %v", i, req.Name, len(req.Raw), err)
			}
		}
		if _, err := split.Next(r); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestRESPErrors(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"*1\r\n$4\r\npi":         "unexpected EOF",
		"*1\r\n":                 "unexpected EOF",
		"PIN":                    "unexpected EOF",
		"*x\r\n":                 "number",
		"*1\r\n:4\r\n":           "length of a string",
		"*1\r\n$-1\r\n":          "length -1",
		"*1\r\n$99999999999\r\n": "number",
	} {
		_, err := RESP().Next(bufio.NewReader(strings.NewReader(sent)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", sent, err, want)
		}
	}
}
