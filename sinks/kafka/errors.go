package kafka

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	client "github.com/segmentio/kafka-go"
)

// refusal is a broker's error code, with what the broker said about it.
type refusal struct {
	code    client.Error
	message string
}

// brokerError returns nil for code 0.
func brokerError(code int16, message string) error {
	if r := refusalOf(code, message); r != nil {
		return r
	}
	return nil
}

func refusalOf(code int16, message string) *refusal {
	if code == 0 {
		return nil
	}
	return &refusal{client.Error(code), message}
}

func (e *refusal) Error() string {
	text := e.code.Title()
	if text == "" {
		text = e.code.Error()
	}
	if e.message == "" || strings.EqualFold(e.message, text) {
		return text
	}
	return text + ": " + e.message
}

func (e *refusal) Unwrap() error { return e.code }

// stale says that the broker is not, or not any more, the partition's leader: others
// know more. A leader that is replaced while it waits for the other replicas says so of
// a batch that these may have, so it is sent again as it was.
func (e *refusal) stale() bool {
	switch e.code {
	case client.UnknownTopicOrPartition, client.LeaderNotAvailable, client.NotLeaderForPartition,
		client.ReplicaNotAvailable, client.BrokerNotAvailable, client.FencedLeaderEpoch,
		client.UnknownLeaderEpoch, client.KafkaStorageError, client.UnknownTopicID, client.InconsistentTopicID:
		return true
	}
	return false
}

// tooLarge says that the batch is larger than the broker takes.
func (e *refusal) tooLarge() bool {
	return e.code == client.MessageSizeTooLarge || e.code == client.RecordListTooLarge
}

// notStored says that the broker has refused the batch before it stored any of it, and
// will not store it later. All that is not known to mean that may mean the contrary.
func (e *refusal) notStored() bool {
	switch e.code {
	case client.InvalidMessage, client.InvalidRecord, client.InvalidTimestamp, client.MessageSizeTooLarge, client.RecordListTooLarge,
		client.InvalidTopic, client.InvalidRequiredAcks, client.UnsupportedForMessageFormat, client.UnsupportedCompressionType,
		client.NotEnoughReplicas, client.PolicyViolation, client.TopicAuthorizationFailed, client.ClusterAuthorizationFailed:
		return true
	}
	return false
}

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed)
}
