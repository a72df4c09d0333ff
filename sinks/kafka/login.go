package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	aws "github.com/aws/aws-sdk-go-v2/config"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/aws_msk_iam_v2"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks/credentials"
)

// login is a SASL mechanism whose secrets are read for each connection.
type login struct {
	cfg   *config.SASL
	start func(context.Context) (sasl.Mechanism, error)
}

func newLogin(cfg *config.SASL) *login {
	l := &login{cfg: cfg}
	switch cfg.Mechanism {
	case config.SASLPlain:
		l.start = l.plain
	case config.SASLSCRAM256, config.SASLSCRAM512:
		l.start = l.scram
	case config.SASLOAuthBearer:
		tokens := &tokens{cfg: cfg}
		l.start = func(ctx context.Context) (sasl.Mechanism, error) {
			token, err := tokens.get(ctx)
			return bearer(token), err
		}
	case config.SASLMSKIAM:
		l.start = (&mskIAM{region: cfg.Region}).mechanism
	default:
		l.start = func(context.Context) (sasl.Mechanism, error) {
			return nil, errors.New("the configuration has no such mechanism")
		}
	}
	return l
}

// Name implements sasl.Mechanism.
func (l *login) Name() string { return string(l.cfg.Mechanism) }

// Start implements sasl.Mechanism.
func (l *login) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	m, err := l.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return m.Start(ctx)
}

func (l *login) plain(context.Context) (sasl.Mechanism, error) {
	password, err := credentials.Secret(l.cfg.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("read password: %w", err)
	}
	return plain.Mechanism{Username: l.cfg.User, Password: password}, nil
}

func (l *login) scram(context.Context) (sasl.Mechanism, error) {
	password, err := credentials.Secret(l.cfg.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("read password: %w", err)
	}
	hash := scram.SHA512
	if l.cfg.Mechanism == config.SASLSCRAM256 {
		hash = scram.SHA256
	}
	m, err := scram.Mechanism(hash, l.cfg.User, password)
	if err != nil {
		// The library's error can repeat what it could not prepare: the password.
		return nil, errors.New("the user or the password has characters that SCRAM does not allow")
	}
	return m, nil
}

// bearer logs in with a token, as RFC 7628 has it.
type bearer string

func (bearer) Name() string { return string(config.SASLOAuthBearer) }

func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return b, []byte("n,,\x01auth=Bearer " + string(b) + "\x01\x01"), nil
}

// Next is called with what is wrong with the token, or with nothing. What is wrong
// has to be acknowledged before the broker says it as an error.
func (bearer) Next(_ context.Context, problem []byte) (bool, []byte, error) {
	if len(problem) == 0 {
		return true, nil, nil
	}
	return false, []byte{1}, nil
}

// tokens gets tokens from a file or from an authorization server.
type tokens struct {
	cfg *config.SASL

	mu    sync.Mutex // one asks, the others wait
	token *oauth2.Token
}

func (t *tokens) get(ctx context.Context) (string, error) {
	if t.cfg.TokenFile != "" {
		token, err := credentials.Secret(t.cfg.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		return strings.TrimSpace(token), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A token that is about to expire makes a connection that is about to be cut.
	if t.token.Valid() && (t.token.Expiry.IsZero() || time.Until(t.token.Expiry) > 30*time.Second) {
		return t.token.AccessToken, nil
	}
	secret, err := credentials.Secret(t.cfg.ClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("read client secret: %w", err)
	}
	grant := clientcredentials.Config{ClientID: t.cfg.ClientID, ClientSecret: secret, TokenURL: t.cfg.TokenURL, Scopes: t.cfg.Scopes}
	token, err := grant.Token(ctx)
	if err != nil {
		return "", fmt.Errorf("get a token from %s: %w", t.cfg.TokenURL, withoutBody(err))
	}
	t.token = token
	return token.AccessToken, nil
}

// withoutBody leaves out the answer's body, of which nobody knows what it repeats.
func withoutBody(err error) error {
	r := (*oauth2.RetrieveError)(nil)
	if !errors.As(err, &r) {
		return err
	}
	text := "refused"
	if r.Response != nil {
		text = r.Response.Status
	}
	for _, more := range []string{r.ErrorCode, r.ErrorDescription} {
		if more != "" {
			text += ": " + more
		}
	}
	return errors.New(text)
}

// mskIAM signs in with AWS credentials from where every AWS client has them.
type mskIAM struct {
	region string

	mu    sync.Mutex
	found *aws_msk_iam_v2.Mechanism // its credentials renew themselves
}

func (m *mskIAM) mechanism(ctx context.Context) (sasl.Mechanism, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found != nil {
		return m.found, nil
	}
	cfg, err := aws.LoadDefaultConfig(ctx, aws.WithRegion(m.region))
	if err != nil {
		return nil, fmt.Errorf("find AWS credentials: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("find AWS credentials: no region: set region, or AWS_REGION")
	}
	m.found = aws_msk_iam_v2.NewMechanism(cfg)
	return m.found, nil
}
