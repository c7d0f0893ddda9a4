# An image that serves an app: docs/guides/production.md.
FROM python:3.13-slim AS wheel
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/headway-*.whl)[metrics,hcl,jwt,postgres]" && rm -r /wheels
RUN useradd --uid 10001 --user-group --no-create-home headway \
    && install -d -o headway -g headway -m 0700 /data \
    && install -d -o headway -g headway -m 0755 /app
ENV PYTHONUNBUFFERED=1
WORKDIR /app
VOLUME /data
EXPOSE 7070
USER headway
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/healthz', timeout=5)"]
ENTRYPOINT ["headway"]
CMD ["serve", "app:app", "--store", "sqlite:/data/headway.db", "--listen", "0.0.0.0:7070", "--access", "/etc/headway/access.yaml", "--metrics", "127.0.0.1:9090", "--hard-exit", "8"]
