package org.hibernate.agroal.internal;

import org.hibernate.engine.jdbc.connections.internal.DriverManagerConnectionProvider;

/** Stands in for the sink's pool of connections, whose jar Maven Central does not have, by the one of Hibernate itself. */
public class AgroalConnectionProvider extends DriverManagerConnectionProvider {}
