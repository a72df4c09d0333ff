package informer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kbridge-io/kbridge/config"
)

// pagesOf serves 1,201 objects in pages, and forgets the list's version once.
func pagesOf(t *testing.T) (url string) {
	t.Helper()
	const objects = 1201
	forgets := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var from, limit int
		fmt.Sscan(r.FormValue("continue"), &from)
		fmt.Sscan(r.FormValue("limit"), &limit)
		if from > 1 && forgets {
			forgets = false
			w.WriteHeader(http.StatusGone)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old","metadata":{"continue":"%d"}}`, from)
			return
		}
		list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := from; i < min(from+limit, objects); i++ {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("o", i), UID: "u", ResourceVersion: "1"}})
		}
		if from+limit < objects {
			list.Continue = fmt.Sprint(from + limit)
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

var podsServed = Served{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

func TestObjectsAreCountedPageByPageWhereTheServerDoesNotSayHowManyThereAre(t *testing.T) {
	client, err := NewClient(&rest.Config{Host: pagesOf(t)}, 1000, 1000, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.Count(t.Context(), podsServed, config.Resource{LabelSelector: "a=b"}, "")
	if err != nil || got != (Count{Objects: 1201}) {
		t.Errorf("%+v are counted, %v", got, err)
	}
}

func TestWhatWasCountedInTimeIsTheLeastThatThereIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pages := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if pages++; pages == 3 {
			cancel()
			return
		}
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"7","continue":"x"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`)
	}))
	defer server.Close()
	client, err := NewClient(&rest.Config{Host: server.URL}, 1000, 1000, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.Count(ctx, podsServed, config.Resource{}, "")
	if err != nil || got.String() != "at least 4" {
		t.Errorf("%s are counted, %v", got, err)
	}
}

// A list that takes long goes on with what the server's error says.
func TestAListOfMetadataThatHasExpiredSaysHowItGoesOn(t *testing.T) {
	client, err := NewClient(&rest.Config{Host: pagesOf(t)}, 1000, 1000, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lw, err := client.counting(podsServed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lw.metadataBody(t.Context(), metav1.ListOptions{Limit: 500, Continue: "500"}); continues(err) != "500" {
		t.Errorf("it goes on at %q after %v", continues(err), err)
	}
}
