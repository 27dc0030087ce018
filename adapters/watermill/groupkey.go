package rotawatermill

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
)

// GroupMetadata is the metadata key that names a message's group when
// [PublisherConfig].GroupKey is not set. "MessageGroupId" (SQS, SNS) and
// "partition_key" (Kafka) are looked at after it.
const GroupMetadata = "rota_group"

// topicGroup is the group of messages without a key under NoKeyPerTopic.
const topicGroup = "_rota_topic"

// NoKeyPolicy says what becomes of a message whose group key is empty.
type NoKeyPolicy uint8

const (
	// NoKeyPerMessage gives it no group: nothing orders it and nothing waits for
	// it, as in a plain work queue. It is the default.
	NoKeyPerMessage NoKeyPolicy = iota
	// NoKeyPerTopic puts all such messages of a topic into one group: they are
	// handled strictly one after the other.
	NoKeyPerTopic
	// NoKeyError refuses to publish it, with ErrNoKey.
	NoKeyError
)

// MetadataGroupKey makes a group key function that takes the first of the named
// metadata values that is set and not empty.
func MetadataGroupKey(names ...string) func(topic string, msg *message.Message) (string, error) {
	return func(_ string, msg *message.Message) (string, error) {
		for _, name := range names {
			if key := msg.Metadata[name]; key != "" {
				return key, nil
			}
		}
		return "", nil
	}
}

// DefaultGroupKey is the group key function of a [PublisherConfig] that brings
// none: the metadata value GroupMetadata, else "MessageGroupId", else
// "partition_key".
func DefaultGroupKey(topic string, msg *message.Message) (string, error) {
	return defaultGroupKey(topic, msg)
}

var defaultGroupKey = MetadataGroupKey(GroupMetadata, "MessageGroupId", "partition_key")

// ForwarderGroupKey makes a group key function for the topic of Watermill's
// forwarder (the outbox component): its envelopes carry no metadata, so key is
// asked about the message inside, with the topic it is bound for. A payload that
// is no envelope is handed to key as it is. With it the forwarder keeps the order
// of each group.
func ForwarderGroupKey(key func(topic string, msg *message.Message) (string, error)) func(topic string, msg *message.Message) (string, error) {
	return func(topic string, msg *message.Message) (string, error) {
		var envelope struct {
			DestinationTopic string            `json:"destination_topic"`
			UUID             string            `json:"uuid"`
			Payload          []byte            `json:"payload"`
			Metadata         map[string]string `json:"metadata"`
		}
		if json.Unmarshal(msg.Payload, &envelope) != nil || envelope.DestinationTopic == "" {
			return key(topic, msg)
		}
		inner := message.NewMessage(envelope.UUID, envelope.Payload)
		inner.Metadata = envelope.Metadata
		inner.SetContext(msg.Context())
		return key(envelope.DestinationTopic, inner)
	}
}

// group resolves a message's group; empty means none.
func (c *PublisherConfig) group(topic string, msg *message.Message) (string, error) {
	key, err := c.GroupKey(topic, msg)
	if err != nil {
		return "", fmt.Errorf("group key: %w", err)
	}
	if key != "" {
		return key, rename(core.CheckGroup(key), "group key")
	}
	switch c.NoKey {
	case NoKeyPerTopic:
		return topicGroup, nil
	case NoKeyError:
		return "", ErrNoKey
	}
	return "", nil
}
