/** Services that tests of previews run inside sandboxes: one that behaves, by path, and one that does not. */

/** What it was asked comes back as JSON, unless the path names something else that it can do. */
export const goodService = (port: number, address = '127.0.0.1') => `
import base64, hashlib, json, os, socket, struct, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit, parse_qs

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *given): pass

    def body(self):
        if self.headers.get('Transfer-Encoding') == 'chunked':
            while True:
                size = int(self.rfile.readline(), 16)
                data = self.rfile.read(size)
                self.rfile.readline()
                if size == 0: return
                yield data
        left = int(self.headers.get('Content-Length', 0))
        while left > 0:
            data = self.rfile.read(min(left, 65536))
            if not data: return
            left -= len(data)
            yield data

    def head(self, status, headers):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.end_headers()

    def say(self, value, headers=()):
        text = json.dumps(value).encode()
        self.head(200, [('Content-Type', 'application/json'), ('Content-Length', str(len(text))), *headers])
        if self.command != 'HEAD': self.wfile.write(text)

    def any(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        getattr(self, 'at_' + url.path.strip('/'), self.echo)(query)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_PURGE = any

    def echo(self, query):
        self.say({'method': self.command, 'url': self.path, 'headers': [[n.lower(), v] for n, v in self.headers.items()],
                  'body': b''.join(self.body()).decode(), 'from': self.client_address[1], 'address': self.connection.getsockname()[0]})

    def at_redirect(self, query):
        self.head(int(query['status']), [('Location', query['to']), ('Content-Length', '0')])

    def at_sets(self, query):
        self.say({}, [('Set-Cookie', 'mine=1; Path=/; Domain=localhost; HttpOnly'), ('Set-Cookie', 'atoll_preview=stolen'),
                      ('Clear-Site-Data', '"*"'), ('Service-Worker-Allowed', '/'), ('Strict-Transport-Security', 'max-age=1'),
                      ('Content-Security-Policy', "default-src 'self'"), ('Connection', 'X-Hop'), ('X-Hop', 'one'), ('X-End', 'two')])

    def at_events(self, query):
        self.head(200, [('Content-Type', 'text/event-stream')])
        self.close_connection = True
        self.wfile.write(b'data: first\\n\\n')
        while not os.path.exists(query['until']): time.sleep(0.02)
        self.wfile.write(b'data: second\\n\\n')

    def at_bytes(self, query):
        left = int(query['count'])
        self.head(200, [('Content-Length', str(left))])
        block = bytes(1 << 20)
        sent = 0
        try:
            while left > 0:
                self.wfile.write(block[:left])
                sent += min(left, len(block))
                left -= len(block)
                with open('/tmp/sent', 'w') as file: file.write(str(sent))
        except OSError: pass

    def at_hash(self, query):
        digest, count = hashlib.sha256(), 0
        for data in self.body():
            digest.update(data)
            count += len(data)
        self.say({'sha256': digest.hexdigest(), 'count': count})

    def at_socket(self, query):
        key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.head(101, [('Upgrade', 'websocket'), ('Connection', 'Upgrade'), ('Sec-WebSocket-Accept', accept)])
        self.close_connection = True
        hello = b'hello from inside'
        self.wfile.write(bytes([0x81, len(hello)]) + hello)
        while True:
            start = self.rfile.read(2)
            if len(start) < 2: return
            length = start[1] & 127
            if length == 126: length = struct.unpack('>H', self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.rfile.read(length)))
            if start[0] & 15 == 8: return
            size = bytes([length]) if length < 126 else bytes([126]) + struct.pack('>H', length)
            self.wfile.write(bytes([start[0]]) + size + data)

class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ':' in '${address}' else socket.AF_INET
    request_queue_size = 128

server = Server(('${address}', ${port}), Handler)
print('ready')
server.serve_forever()`;

/** Speaks as the path says, whatever HTTP demands. */
export const badService = (port: number) => `
import socket, threading, time

def endless(peer):
    peer.sendall(b'HTTP/1.1 200 OK\\r\\n')
    while True: peer.sendall(b'X-More: ' + b'a' * 1000 + b'\\r\\n')

def silent(peer):
    while peer.recv(1000): pass

def raw(text): return lambda peer: peer.sendall(text)

answers = {
    'endless': endless,
    'silent': silent,
    'nothing': raw(b''),
    'garbage': raw(b'SSH-2.0-OpenSSH_9.6\\r\\n' * 10),
    'lies': raw(b'HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\nfree bytes'),
    'twolengths': raw(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n4\\r\\nabcd\\r\\n0\\r\\n\\r\\n'),
    'short': raw(b'HTTP/1.1 200 OK\\r\\nContent-Length: 1000\\r\\n\\r\\nhalf'),
    'status': raw(b'HTTP/1.1 999 Odd\\r\\nContent-Length: 0\\r\\n\\r\\n'),
    'letters': raw(b'HTTP/1.1 200 OK\\r\\nX-Odd: a\\x01b\\r\\nContent-Length: 0\\r\\n\\r\\n'),
    'extra': raw(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nokHTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\nstolen'),
}

def serve(peer):
    try:
        head = b''
        while b'\\r\\n\\r\\n' not in head:
            data = peer.recv(65536)
            if not data: return
            head += data
        answers[head.split(b' ')[1].decode().strip('/')](peer)
    except OSError: pass
    finally: peer.close()

server = socket.create_server(('127.0.0.1', ${port}), backlog=128)
print('ready')
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()`;
