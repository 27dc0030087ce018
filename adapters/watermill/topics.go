package rotawatermill

import (
	"strings"

	"github.com/rota-queue/rota/core"
)

// QueueName gives the queue that holds the messages of a topic for a consumer
// group: "topic@group", or the topic's own name for no group. It is the name to
// use with the rest of rota: inspection, retry of dead letters, pausing, metrics.
//
// It answers a *core.InvalidError for names no queue can have: empty, blank,
// control characters, invalid UTF-8, more than core.MaxQueueName bytes together,
// or a topic with an "@" beside a consumer group.
func QueueName(topic, consumerGroup string) (string, error) {
	if err := checkTopic(topic); err != nil {
		return "", err
	}
	if consumerGroup == "" {
		return topic, nil
	}
	if strings.Contains(topic, "@") {
		return "", core.Invalid("topic", topic, `contains "@", which divides topic and consumer group`)
	}
	if err := checkConsumerGroup(consumerGroup); err != nil {
		return "", err
	}
	queue := topic + "@" + consumerGroup
	if err := core.CheckQueue(queue); err != nil {
		return "", err
	}
	return queue, nil
}

func checkTopic(topic string) error {
	return rename(core.CheckQueue(topic), "topic")
}

func checkConsumerGroup(name string) error {
	return rename(core.CheckQueue(name), "consumer group")
}

// rename makes an error about a queue's name one about what the caller named.
func rename(err error, field string) error {
	if invalid, ok := err.(*core.InvalidError); ok {
		return &core.InvalidError{Field: field, Value: invalid.Value, Reason: invalid.Reason}
	}
	return err
}
