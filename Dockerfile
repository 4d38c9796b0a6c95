# One image for every role: the command says which. Nothing is built in the second stage, and nobody in it is root.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY faultlens faultlens
COPY producers producers
COPY streams streams
COPY sinks sinks
COPY slo slo
COPY actuators actuators
RUN python -m venv /opt/faultlens && /opt/faultlens/bin/pip install --no-cache-dir '.[stream,server,kubernetes,agent]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/faultlens --create-home --shell /usr/sbin/nologin faultlens
COPY --from=build /opt/faultlens /opt/faultlens
ENV PATH=/opt/faultlens/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /var/lib/faultlens
STOPSIGNAL SIGTERM
ENTRYPOINT ["faultlens"]
CMD ["--help"]
