# Audits models in the volume /models. docs/how-to/fleets.md describes its use.
FROM python:3.13.12-slim-trixie AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE CHANGELOG.md CITATION.cff ./
COPY docs/reference/policytool.1 docs/reference/policytool.1
COPY policytool policytool
RUN python -m venv /opt/policytool \
    && /opt/policytool/bin/pip install --no-cache-dir --disable-pip-version-check . \
    && /opt/policytool/bin/pip uninstall --yes --quiet pip

FROM python:3.13.12-slim-trixie
LABEL org.opencontainers.image.title="policytool" \
      org.opencontainers.image.description="Inspect, audit and convert the dtype policies of saved Keras and TensorFlow models, without importing TensorFlow." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.example/OWNER/policytool" \
      org.opencontainers.image.documentation="https://github.example/OWNER/policytool/tree/main/docs"
# The number is fixed, so that volumes can belong to this user.
RUN groupadd --gid 10001 policytool \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin policytool
COPY --from=build /opt/policytool /opt/policytool
ENV PATH="/opt/policytool/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /models
WORKDIR /models
ENTRYPOINT ["policytool"]
CMD ["--help"]
