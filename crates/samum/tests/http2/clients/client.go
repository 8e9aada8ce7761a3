// The client of Go's net/http over HTTP/2: many files at once, an upload, a cancelled download, a long download. Arguments:
// the URL of the server, and the file of the authority that it trusts; without that file HTTP/2 is spoken without TLS.
package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

const files = 300

func main() {
	base := os.Args[1]
	protocols := new(http.Protocols)
	transport := &http.Transport{Protocols: protocols}
	if len(os.Args) > 2 {
		pem, err := os.ReadFile(os.Args[2])
		check(err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "localhost"}
		protocols.SetHTTP2(true)
	} else {
		protocols.SetUnencryptedHTTP2(true)
	}
	client := &http.Client{Transport: transport}

	var all sync.WaitGroup
	for n := range files {
		all.Go(func() {
			body := get(client, fmt.Sprintf("%s/files/%d", base, n))
			if len(body) != 30000 {
				fail("file %d has %d bytes", n, len(body))
			}
		})
	}
	all.Wait()

	// An upload whose length is known, and one whose length is not.
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	sum := md5.Sum(content)
	for _, body := range []io.Reader{bytes.NewReader(content), io.MultiReader(bytes.NewReader(content))} {
		answer, err := client.Post(base+"/tool/sum", "text/plain", body)
		check(err)
		said, err := io.ReadAll(answer.Body)
		check(err)
		if !strings.HasPrefix(string(said), hex.EncodeToString(sum[:])) {
			fail("the upload has become %q", said)
		}
	}

	// Downloads that are cancelled in the middle.
	for range 100 {
		cancelled, cancel := context.WithCancel(context.Background())
		request, err := http.NewRequestWithContext(cancelled, "GET", base+"/files/long", nil)
		check(err)
		answer, err := client.Do(request)
		check(err)
		_, err = io.ReadFull(answer.Body, make([]byte, 1000))
		check(err)
		cancel()
		answer.Body.Close()
	}

	// Long downloads beside each other.
	for range 4 {
		all.Go(func() {
			if body := get(client, base+"/files/long"); len(body) != 20_000_000 {
				fail("the long file has %d bytes", len(body))
			}
		})
	}
	all.Wait()
}

func get(client *http.Client, url string) []byte {
	answer, err := client.Get(url)
	check(err)
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 || answer.StatusCode != 200 {
		fail("%s: %s %s", url, answer.Proto, answer.Status)
	}
	body, err := io.ReadAll(answer.Body)
	check(err)
	return body
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
