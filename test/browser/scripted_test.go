package browser

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/monitor"
	"github.com/kbridge-io/kbridge/internal/status"
)

// scripted is a server that tells what the test says.
type scripted struct {
	*monitor.Server
	t      *testing.T
	origin string
	tail   status.Tail
	closed sync.Once

	mu    sync.Mutex
	doc   status.Status
	looks int // how often it was asked for
}

func serve(t *testing.T, cfg config.Server, doc status.Status) *scripted {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	access, err := monitor.NewAccess(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, doc: doc}
	s.Server, err = monitor.Start(monitor.Options{
		Address: "127.0.0.1:0", Access: access, Registry: prometheus.NewRegistry(), Tail: &s.tail, Log: log,
		Problems: func() []status.Problem { return nil },
		Status: func() status.Status {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.looks++
			doc := s.doc
			doc.Time = time.Now()
			return doc
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.origin = "http://" + s.Address()
	t.Cleanup(s.close)
	return s
}

func (s *scripted) close() {
	s.closed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			s.t.Error(err)
		}
	})
}

// tell changes what is told.
func (s *scripted) tell(change func(doc *status.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.doc)
}

// isTold waits until what was added has been sent: the status is sent with it, and once more.
func (s *scripted) isTold() {
	s.t.Helper()
	looks := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.looks
	}
	enough := looks() + 3
	for end := time.Now().Add(patience); looks() < enough; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("the page asks no more")
		}
	}
}

// busy is the document of a kbridge that has all there is to show, with that text wherever the text is somebody else's.
func busy(theirs string) status.Status {
	now := time.Now()
	failed := &status.Error{Time: now.Add(-time.Minute), Text: "last " + theirs}
	doc := status.Status{
		Version: "v0.9.0", Started: now.Add(-26 * time.Hour), Cluster: "prod-eu", Server: "https://10.0.0.1:443", Ready: false,
		Problems: []status.Problem{
			{About: "sink audit", Reason: "undelivered", Text: "connect to nats://nats:4222: " + theirs, Advice: "Look at the broker.", Since: now.Add(-3 * time.Minute), Unready: true},
			{About: "sink audit", Reason: "deadLetters", Text: "3 events are in the dead letters", Advice: "Look at them.", Since: now.Add(-time.Hour)},
		},
		Sinks: []status.Sink{
			{Name: "audit", Kind: "nats", Target: "nats://nats:4222, stream KBRIDGE", Events: 1_234_567, EventsPerSecond: 0.4, OldestSeconds: 91,
				Window:        status.Window{Events: 65536, MaxEvents: 65536, Bytes: 20 << 20, MaxBytes: 64 << 20, Waiting: 3},
				BehindObjects: 12345, FoldedObjects: 12345, DeadLetters: status.DeadLetters{Events: 3, Last: now, Target: "/var/lib/kbridge/dead/audit.jsonl"},
				Failures: 99, Error: theirs, LastError: failed},
			{Name: "state", Kind: "kafka", Target: "kafka-0.kafka.messaging.svc.cluster.local:9092, topic k8s.{group}.{resource}", Events: 7, EventsPerSecond: 1234.5,
				Window: status.Window{MaxEvents: 65536, MaxBytes: 64 << 20}, LastError: failed},
		},
		State: &status.State{Dir: "/var/lib/kbridge", Commits: 4711, LastCommit: now, Errors: 1, PendingChanges: 5, Error: theirs, LastError: failed},
	}
	for i, phase := range []status.Phase{status.Starting, status.Listing, status.Watching, status.Waiting} {
		doc.Resources = append(doc.Resources, status.Resource{
			Entry: fmt.Sprintf("entry-%d", i), Resource: "horizontalpodautoscalers.autoscaling", Namespaces: []string{"shop", "billing"}, Phase: phase,
			Since: now.Add(-20 * time.Second), Objects: 100_000, Changes: 1 << 40, ChangesPerSecond: 123.4, LastChange: now.Add(-time.Minute), LagSeconds: 0.012,
			Lists: map[string]uint64{"start": 1, "expired": 12, "differs": 2}, Errors: 3, LastError: failed,
		})
	}
	return doc
}

func event(theirs string) status.Event {
	return status.Event{
		Time: time.Now(), Seconds: 0.0042, Sink: "audit", Outcome: status.DeadLetter, Reason: "reason " + theirs, Type: "updated",
		Resource: "deployments.apps", Namespace: "shop", Name: "name " + theirs, ResourceVersion: "12", Snapshot: true, Inferred: true,
	}
}

// look opens the page, and waits until it shows everything, an event too.
func look(t *testing.T, s *scripted, width, height int64, theirs string) *tab {
	t.Helper()
	b := open(t, width, height)
	b.do(chromedp.Navigate(s.origin + "/"))
	b.reads("#link", "live")
	s.tail.Add(event(theirs))
	b.reads("#events", "dead letter")
	return b
}

func TestTextOfOthersIsInertAndItsControlCharactersAreVisible(t *testing.T) {
	const theirs = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'><b id=harm>\u202e\u0007\n&amp;" + `"'` + "</b>"
	const shown = `<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'><b id=harm>\u{202e}\u{7}\u{a}&amp;"'</b>`
	doc := busy(theirs)
	// Every word of the document is somebody's.
	doc.Cluster, doc.Version = theirs, theirs
	for i := range doc.Problems {
		doc.Problems[i].About, doc.Problems[i].Advice = theirs, theirs
	}
	for i := range doc.Resources {
		r := &doc.Resources[i]
		r.Entry, r.Resource, r.Namespaces, r.Lists = theirs, theirs+"!", []string{theirs}, map[string]uint64{theirs: 1}
	}
	for i := range doc.Sinks {
		sink := &doc.Sinks[i]
		sink.Name, sink.Kind, sink.Target, sink.DeadLetters.Target = theirs, theirs, theirs, theirs
	}
	doc.State.Dir = theirs
	s := serve(t, config.Server{}, doc)
	b := look(t, s, 1200, 900, theirs)
	for _, part := range []string{"#about", "#problems", "#resources", "#sinks", "#state", "#events"} {
		if text := b.text(part); !strings.Contains(text, shown) {
			t.Errorf("%s does not show\n%s\nbut\n%s", part, shown, text)
		}
	}
	s.tell(func(doc *status.Status) { doc.Problems = []status.Problem{} })
	b.reads("#announcer", "Over: ", shown)
	if harm := eval[string](b, "String(window.harmed) + document.querySelectorAll('img, #harm, main script').length + document.title.includes('\\u202e')"); harm != "undefined0false" {
		t.Errorf("it does harm: %s", harm)
	}
	b.quiet(s.origin)
}

func TestThePageFitsASmallScreen(t *testing.T) {
	long := strings.Repeat("averylongwordthatnobodybreaks", 8)
	s := serve(t, config.Server{}, busy(long))
	b := look(t, s, 360, 740, long)
	if width := eval[int](b, "document.documentElement.scrollWidth"); width > 360 {
		t.Errorf("the page is %d wide on a screen of 360", width)
	}
	outside := eval[[]string](b, `[...document.querySelectorAll("main *, header *, footer *")].filter((e) => {
		const r = e.getBoundingClientRect();
		return r.width > 1 && (r.left < 0 || r.right > 360) && !e.closest(".unseen, thead");
	}).map((e) => e.outerHTML.slice(0, 200))`)
	if len(outside) > 0 {
		t.Errorf("what stands outside of the screen:\n%s", strings.Join(outside, "\n"))
	}
	if small := eval[float64](b, `Math.min(...[...document.querySelectorAll("main *")].filter((e) => e.innerText).map((e) => parseFloat(getComputedStyle(e).fontSize)))`); small < 12 {
		t.Errorf("some text is %v pixels high", small)
	}
	// Each value has its column's name beside it.
	if label := eval[string](b, `getComputedStyle(document.querySelector("#sinks td"), "::before").content`); label != `"Events a second"` {
		t.Errorf("the label of a value is %s", label)
	}
	b.quiet(s.origin)
}

func TestAllOfThePageIsReachedByKeyboard(t *testing.T) {
	s := serve(t, config.Server{}, busy("refused"))
	b := look(t, s, 1200, 900, "first")
	const focused = `(document.activeElement.id || document.activeElement.textContent) + ": " + getComputedStyle(document.activeElement).outlineStyle`
	tab := func() string {
		b.do(chromedp.KeyEvent(kb.Tab))
		return eval[string](b, focused)
	}
	if got := tab(); got != "Skip to what is wrong now: solid" {
		t.Errorf("the first that is reached is %q", got)
	}
	if top := eval[float64](b, "document.activeElement.getBoundingClientRect().top"); top < 0 {
		t.Error("the link that is reached is not on the screen")
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	if got := eval[string](b, "document.activeElement.id"); got != "main" {
		t.Errorf("the link leads to %q", got)
	}
	if got := tab(); got != "pause: solid" {
		t.Errorf("after it comes %q", got)
	}
	pressed := func(want string) {
		t.Helper()
		if got := eval[string](b, `document.getElementById("pause").getAttribute("aria-pressed")`); got != want {
			t.Errorf("aria-pressed is %s, want %s", got, want)
		}
	}
	pressed("false")
	b.do(chromedp.KeyEvent(" "))
	pressed("true")
	b.reads("#lost", "Paused.")
	s.tail.Add(event("while it is paused"))
	s.isTold()
	if text := b.text("#events"); strings.Contains(text, "while it is paused") || !strings.Contains(text, "first") {
		t.Errorf("paused, it shows\n%s", text)
	}
	b.do(chromedp.KeyEvent(" "))
	pressed("false")
	s.tail.Add(event("after that"))
	b.reads("#events", "after that")
	var rest []string
	for range 4 {
		rest = append(rest, tab())
	}
	if want := []string{"statusz: solid", "metrics: solid", "readyz: solid", "healthz: solid"}; !slices.Equal(rest, want) {
		t.Errorf("then come %q, want %q", rest, want)
	}
	b.quiet(s.origin)
}

func TestNothingMovesForWhoWantsThat(t *testing.T) {
	s := serve(t, config.Server{}, busy("refused"))
	for want, value := range map[string]string{"arrive": "no-preference", "none": "reduce"} {
		b := open(t, 1200, 900)
		b.media("prefers-reduced-motion", value)
		b.do(chromedp.Navigate(s.origin + "/"))
		b.reads("#link", "live")
		s.tail.Add(event("moves"))
		b.reads("#events", "moves")
		if got := eval[string](b, `getComputedStyle(document.querySelector("#events tr.new")).animationName`); got != want {
			t.Errorf("with %s the animation is %q, want %q", value, got, want)
		}
	}
}

func TestAPageThatLosesItsServerSaysSo(t *testing.T) {
	s := serve(t, config.Server{}, busy("refused"))
	b := look(t, s, 1200, 900, "first")
	s.close()
	b.reads("#problems", "This page: kbridge does not answer.", "as it was before", "sink audit")
	b.reads("#announcer", "This page: kbridge does not answer.")
	if stale := eval[bool](b, `document.body.classList.contains("stale")`); !stale {
		t.Error("what is old looks like new")
	}
}

func TestWhoHasTheTokenSeesThePageInABrowser(t *testing.T) {
	const token = "a-token-for-those-who-may-look"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, config.Server{Auth: &config.Auth{TokenFile: file}}, busy("refused"))
	for password, want := range map[string]string{token: "audit", "another-token-for-who-may-not": "the token of server.auth.tokenFile is needed"} {
		b := open(t, 1200, 900)
		b.login(password)
		b.do(chromedp.Navigate(s.origin + "/"))
		b.reads("body", want)
		if password == token {
			b.reads("#link", "live") // its stream is let in too
		}
	}
}

// login answers when the browser asks for user and password, once.
func (b *tab) login(password string) {
	b.t.Helper()
	all := true
	ctx, cancel := context.WithCancel(b.ctx)
	b.t.Cleanup(cancel)
	asked, paused := chromedp.Events(ctx, fetch.AuthRequired), chromedp.Events(ctx, fetch.RequestPaused)
	b.do(command(fetch.Enable, fetch.EnableParams{HandleAuthRequests: &all}))
	var answering sync.WaitGroup
	b.t.Cleanup(answering.Wait)
	b.t.Cleanup(cancel)
	answering.Go(func() {
		answer := fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: "anybody", Password: password}
		for ev, err := range asked {
			if err != nil {
				return
			}
			response := answer
			_ = chromedp.Do(ctx, command(fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: ev.RequestID, AuthChallengeResponse: &response}))
			answer = fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth}
		}
	})
	answering.Go(func() {
		for ev, err := range paused {
			if err != nil {
				return
			}
			_ = chromedp.Do(ctx, command(fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: ev.RequestID}))
		}
	})
}
