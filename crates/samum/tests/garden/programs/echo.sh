#!/bin/sh
# A CGI program that tells how its server has parsed the request.
# Some servers read nothing before they have written the whole body.
body=$(mktemp) || exit 1
trap 'rm -f "$body"' EXIT
cat >"$body"
printf 'Content-Type: text/plain\r\n\r\n'
echo "$REQUEST_METHOD $REQUEST_URI"
env | sed -n '/^HTTP_/{
  s/^HTTP_//
  h
  s/=.*//
  y/ABCDEFGHIJKLMNOPQRSTUVWXYZ_/abcdefghijklmnopqrstuvwxyz-/
  G
  s/\n[^=]*=/: /
  p
}'
echo
cat "$body"
