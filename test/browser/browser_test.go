package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(chromium{m}) }

// patience is how long anything that must come may take, on a slow machine.
const patience = 90 * time.Second

// chromium ends the browser, and removes the programs, that the tests of the package share.
type chromium struct{ testcluster.TestingM }

func (m chromium) Run() int {
	defer func() { _ = os.RemoveAll(binary.dir) }()
	defer shared.end()
	return m.TestingM.Run()
}

var shared instance

// instance is a running Chromium.
type instance struct {
	once sync.Once
	ctx  context.Context
	ends []func()
	err  error
}

func (i *instance) end() {
	for _, end := range slices.Backward(i.ends) {
		end()
	}
}

// names are what Chromium is called: by Debian, by others, and where it is Chrome.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

var errNoBrowser = errors.New("no Chromium is installed: `make browser` installs Debian's")

func findBrowser() (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBrowser
}

func (i *instance) start() {
	path, err := findBrowser()
	if err != nil {
		i.err = err
		return
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.WSURLReadTimeout(patience), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to have one as root
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	i.ends = append(i.ends, end)
	ctx, end := chromedp.NewContext(allocator)
	i.ends = append(i.ends, end, func() { _ = chromedp.Cancel(ctx) }) // which waits for its end
	i.ctx = ctx
	i.err = chromedp.Do(ctx) // which starts it
}

// tab is a tab of a browser that has nothing of others, and what happened in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string // URLs
	said     []string // what scripts, the policy and the network complain of
}

// open opens a tab of that size.
func open(t *testing.T, width, height int64) *tab {
	t.Helper()
	shared.once.Do(shared.start)
	if errors.Is(shared.err, errNoBrowser) && os.Getenv("CI") != "true" {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatalf("start Chromium: %v", shared.err)
	}
	ctx, end := chromedp.NewContext(shared.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
		end()
	})
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.onEvent); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(width, height), command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}))
	return b
}

// command is an action of one command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (b *tab) onEvent(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, ev.Request.URL)
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, "exception: "+ev.ExceptionDetails.Text+" "+exception(ev.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.said = append(b.said, fmt.Sprintf("console.%s", ev.Type))
	case *log.EventEntryAdded:
		b.said = append(b.said, fmt.Sprintf("%s %s: %s %s", ev.Entry.Source, ev.Entry.Level, ev.Entry.Text, ev.Entry.URL))
	}
}

func exception(d *runtime.ExceptionDetails) string {
	if d.Exception == nil {
		return ""
	}
	return d.Exception.Description
}

// quiet fails the test if a script has failed, the page's policy was broken, or anything was asked for elsewhere.
func (b *tab) quiet(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.said {
		b.t.Errorf("the browser says: %s", text)
	}
	asked := 0
	for _, url := range b.requests {
		if strings.HasPrefix(url, origin+"/") {
			asked++
		} else if !strings.HasPrefix(url, "data:") {
			b.t.Errorf("the page asks for %s", url)
		}
	}
	if asked < 2 {
		b.t.Errorf("%d requests were seen, of a page and its stream: %q", asked, b.requests)
	}
}

// do does things in the tab.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// text is what a person reads of the elements.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.innerText).join('\\n')", selector))
}

// reads waits until the elements' text has all the words.
func (b *tab) reads(selector string, words ...string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text := b.text(selector)
		missing := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.Contains(text, w) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.t.Fatalf("%s: %q is not in\n%s\nthe browser says %q", selector, missing, text, b.said)
		}
	}
}

// media lets the page have a preference, such as prefers-color-scheme.
func (b *tab) media(name, value string) {
	b.t.Helper()
	b.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}}))
}
