//go:build install && linux

package install

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveNames answers the pods' questions for Services, as a cluster's DNS does. It ends with the process.
func (n *node) serveNames(context.Context) error {
	conn, err := net.ListenPacket("udp", nodeIP+":53")
	if err != nil {
		return fmt.Errorf("serve names: %w", err)
	}
	go func() {
		question := make([]byte, 4<<10)
		for {
			size, from, err := conn.ReadFrom(question)
			if err != nil {
				fmt.Fprintln(os.Stderr, "serve names:", err)
				return
			}
			answer, err := n.answer(question[:size])
			if err == nil {
				_, err = conn.WriteTo(answer, from)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "serve names:", err)
			}
		}
	}()
	return nil
}

// answer knows NAME.NAMESPACE.svc.cluster.local, and that there is nothing else.
func (n *node) answer(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(question)
	if err != nil {
		return nil, fmt.Errorf("read a question: %w", err)
	}
	q, err := p.Question()
	if err != nil {
		return nil, fmt.Errorf("read a question: %w", err)
	}
	header.Response, header.Authoritative, header.RecursionAvailable = true, true, true
	var address [4]byte
	labels := strings.Split(strings.TrimSuffix(q.Name.String(), "."), ".")
	found := false
	if len(labels) == 5 && strings.Join(labels[2:], ".") == "svc.cluster.local" {
		service, err := n.client.CoreV1().Services(labels[1]).Get(context.Background(), labels[0], metav1.GetOptions{})
		if err == nil {
			found = copy(address[:], net.ParseIP(service.Spec.ClusterIP).To4()) == 4
		}
	}
	if !found {
		header.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, header)
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q); err != nil {
		return nil, err
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	if found && q.Type == dnsmessage.TypeA { // there is no IPv6
		if err := b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, dnsmessage.AResource{A: address}); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}
