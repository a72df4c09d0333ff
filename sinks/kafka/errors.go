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

// ErrClosed is the end of an event that a closed sink got, or had under way.
var ErrClosed = errors.New("sink is closed")

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

// stale says that the broker is not, or not yet, the partition's leader: it has
// stored nothing, and others know more.
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

// mayBeStored says that the batch can be in the log, now or later.
func (e *refusal) mayBeStored() bool {
	switch e.code {
	case client.RequestTimedOut, client.NotEnoughReplicasAfterAppend, client.NetworkException, client.Unknown:
		return true
	}
	return false
}

// outOfSequence says that the broker and we do not agree on what it has of this producer.
func (e *refusal) outOfSequence() bool {
	switch e.code {
	case client.OutOfOrderSequenceNumber, client.DuplicateSequenceNumber, client.InvalidProducerEpoch,
		client.InvalidProducerIDMapping, client.UnknownProducerId:
		return true
	}
	return false
}

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed)
}

// causeKey is the error's text without what differs each time: the local port.
func causeKey(err error) string {
	text := err.Error()
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		text = strings.ReplaceAll(text, op.Error(), op.Op+" "+op.Err.Error())
	}
	return text
}
