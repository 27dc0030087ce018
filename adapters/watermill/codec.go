package rotawatermill

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
)

// A message becomes a job like this: the payload is the payload, each metadata
// entry is a header of the same name, and the UUID is a header of its own. The
// job gets an id of its own, because Watermill programs publish one UUID more
// than once (poison queues, requeuers, retries).
//
// Headers must be UTF-8 without NUL and have a name; metadata may be any bytes.
// An entry that does not fit, or whose name starts with the reserved prefix, is
// stored in base64, name and value, under headerBinary + name.
const (
	headerPrefix = "_rota_wm_"
	headerUUID   = headerPrefix + "uuid"
	headerUUID64 = headerPrefix + "uuid64" // instead, when the UUID is no text
	headerBinary = headerPrefix + "b64_"
)

// encode makes the headers of a message.
func encode(msg *message.Message) map[string]string {
	headers := make(map[string]string, len(msg.Metadata)+1)
	if isText(msg.UUID) {
		headers[headerUUID] = msg.UUID
	} else {
		headers[headerUUID64] = toText(msg.UUID)
	}
	for name, value := range msg.Metadata {
		if name != "" && !strings.HasPrefix(name, headerPrefix) && isText(name) && isText(value) {
			headers[name] = value
		} else {
			headers[headerBinary+toText(name)] = toText(value)
		}
	}
	return headers
}

// decode makes a new message of a job. A job that was not published by this
// package has its id as UUID and its headers as metadata.
func decode(job *core.Job) *message.Message {
	msg := message.NewMessage(decodeUUID(job), job.Payload)
	for name, value := range job.Headers {
		switch binary, isBinary := strings.CutPrefix(name, headerBinary); {
		case isBinary:
			msg.Metadata[fromText(binary)] = fromText(value)
		case !strings.HasPrefix(name, headerPrefix):
			msg.Metadata[name] = value
		}
	}
	return msg
}

// decodeUUID gives only the UUID.
func decodeUUID(job *core.Job) string {
	if uuid, ok := job.Headers[headerUUID]; ok {
		return uuid
	}
	if uuid, ok := job.Headers[headerUUID64]; ok {
		return fromText(uuid)
	}
	return job.ID
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func toText(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// fromText undoes toText; what toText did not make stays as it is.
func fromText(s string) string {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return s
	}
	return string(b)
}
