// An origin of net/http. It announces its address as samum does.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strings"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	lines := []string{"host: " + r.Host}
	for name, values := range r.Header {
		lines = append(lines, strings.ToLower(name)+": "+strings.Join(values, ", "))
	}
	sort.Strings(lines)
	fmt.Fprintf(w, "%s %s\n%s\n\n%s", r.Method, r.RequestURI, strings.Join(lines, "\n"), body)
}

func serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	switch r.URL.Path {
	case "/fixed":
		header.Add("Set-Cookie", "a=1")
		header.Add("Set-Cookie", "b=2")
		header.Set("Content-Length", "5")
		header.Set("Server", "go")
		io.WriteString(w, "fixed")
	case "/chunked":
		for _, piece := range []string{"one", "two", "three"} {
			io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	case "/trailers":
		header.Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
		header.Set("X-Sum", "1")
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
	case "/unchanged":
		header.Set("ETag", "\"x\"")
		w.WriteHeader(http.StatusNotModified)
	case "/hints":
		header.Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hinted")
	case "/missing":
		http.NotFound(w, r)
	default:
		echo(w, r)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "listening on http://%s/\n", listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(serve)))
}
